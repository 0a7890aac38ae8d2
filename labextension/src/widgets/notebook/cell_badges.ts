// The badges of one notebook, on cells that run while its kernel waits, with the remedies below the
// first one. Screen readers hear of it once, not each second.

import { CodeCell, ICellModel } from '@jupyterlab/cells';
import { Notebook, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { AttachedKernel } from '../../sessions/attached_kernel';
import { IWait, waitOf, WaitTeller } from '../../model/waits';
import { CellBadge } from './cell_badge';
import { isRunning } from '../kernels/waiting_cells';
import { CellWays, ICellWaysOptions } from '../kernels/ways_out_item';

export class CellBadges implements IDisposable {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _options: ICellWaysOptions
  ) {
    this._attached = new AttachedKernel(_options.model, _panel.sessionContext);
    this._teller = new WaitTeller(_options.trans);
    this._ways = new CellWays(_panel, _options);
    this._live.className = 'aliquot-Live';
    this._live.setAttribute('role', 'status');
    _panel.node.append(this._live);
    this._attached.changed.connect(this._look, this);
    NotebookActions.executionScheduled.connect(this._onExecution, this);
    NotebookActions.executed.connect(this._onExecution, this);
    _panel.content.modelChanged.connect(this._followCells, this);
    _panel.disposed.connect(this.dispose, this);
    this._followCells();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    clearTimeout(this._timer);
    this._watch?.dispose();
    this._attached.dispose();
    this._ways.dispose();
    this._badges.forEach(badge => badge.dispose());
    this._live.remove();
    Signal.clearData(this);
  }

  private _onExecution(_: unknown, { notebook }: { notebook: Notebook }): void {
    if (notebook === this._panel.content) {
      this._look();
    }
  }

  private _look(): void {
    if (this._isDisposed) {
      return;
    }
    const wait = waitOf(this._attached.kernel, this._options.trans);
    const cells = wait === null ? [] : this._runningCells();
    this._show(cells, wait);
    const [first] = cells;
    this._ways.follow(first === undefined ? null : (this._badges.get(first) ?? null));
    this._say(cells.length > 0 ? wait : null);
    this._follow(cells.length > 0);
  }

  /** The running cells, in the order in which this page saw them start. */
  private _runningCells(): CodeCell[] {
    // A long notebook may run all its cells at once: look them up, do not search.
    const running = new Set(this._panel.content.widgets.filter(isRunning));
    const known = this._order.filter(cell => running.has(cell));
    known.forEach(cell => running.delete(cell));
    this._order = [...known, ...Array.from(running)];
    return this._order;
  }

  private _show(cells: readonly CodeCell[], wait: IWait | null): void {
    const waiting = new Set(cells);
    for (const [cell, badge] of [...this._badges]) {
      if (!waiting.has(cell)) {
        badge.dispose();
        this._badges.delete(cell);
      }
    }
    cells.forEach((cell, index) => {
      if (wait !== null) {
        this._badgeOf(cell)?.tell(wait, index === 0);
      }
    });
  }

  private _badgeOf(cell: CodeCell): CellBadge | null {
    let badge = this._badges.get(cell) ?? null;
    if (badge === null) {
      badge = CellBadge.into(cell);
      if (badge !== null) {
        this._badges.set(cell, badge);
        cell.disposed.connect(() => this._badges.delete(cell));
      } else if (!this._unseen.has(cell)) {
        this._unseen.add(cell);
        void cell.ready.then(() => this._look()); // once it is scrolled into sight
      }
    }
    return badge;
  }

  private _say(wait: IWait | null): void {
    clearTimeout(this._timer);
    const said = this._teller.next(wait, performance.now());
    if (said !== null) {
      this._live.textContent = said;
    } else if (wait !== null) {
      this._timer = window.setTimeout(() => this._say(wait), WaitTeller.QUIET_MS);
    }
  }

  /** Watch the model while there are visible badges. */
  private _follow(isWaiting: boolean): void {
    if (isWaiting && this._panel.isVisible) {
      this._watch ??= this._options.model.watch();
    } else {
      this._watch?.dispose();
      this._watch = null;
    }
  }

  /**
   * Cells that run without an action of this page, as after a reload, report it by their prompt.
   */
  private _followCells(): void {
    const cells = this._panel.content.model?.cells;
    cells?.changed.connect(this._onCells, this);
    for (const cell of cells ?? []) {
      cell.stateChanged.connect(this._onCellState, this);
    }
    this._look();
  }

  private _onCells(_: unknown, { newValues }: { newValues: readonly (ICellModel | undefined)[] }): void {
    newValues.forEach(cell => cell?.stateChanged.connect(this._onCellState, this));
  }

  private _onCellState(_: unknown, { name }: { name: string }): void {
    if (name === 'executionState') {
      this._look();
    }
  }

  private readonly _attached: AttachedKernel;
  private readonly _badges = new Map<CodeCell, CellBadge>();
  /**
   * Cells that were out of view when they needed a badge; each reports once when it comes into
   * view.
   */
  private readonly _unseen = new WeakSet<CodeCell>();
  private readonly _live = document.createElement('div');
  private readonly _teller: WaitTeller;
  private readonly _ways: CellWays;
  private _order: CodeCell[] = [];
  private _timer = 0;
  private _watch: IDisposable | null = null;
  private _isDisposed = false;
}
