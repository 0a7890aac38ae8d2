// A line between a cell's input and output that tells what the cell waits for. It is a widget of
// the cell, so that it moves with the cell in a windowed notebook, and ends with it.

import { CodeCell } from '@jupyterlab/cells';
import { PanelLayout, Widget } from '@lumino/widgets';

import { percent } from '../../base/quantities';
import { isNotice, IWait } from '../../model/waits';
import { gpuIcon } from '../elements/icons';

/** Lab's class of what holds a cell's output. */
const OUTPUTS = 'jp-Cell-outputWrapper';

/** What Lab calls the text of a stderr stream. */
const STDERR = 'application/vnd.jupyter.stderr';

/**
 * Hides the relay's notice in the output, which is for other clients, while the badge shows the
 * same.
 */
const TOLD = 'aliquot-mod-told';

export class CellBadge extends Widget {
  constructor(private readonly _cell: CodeCell) {
    super();
    this.addClass('aliquot-CellBadge');
    gpuIcon.element({ container: this._sign, tag: 'span', className: 'aliquot-CellBadge-icon' });
    this._sign.className = 'aliquot-CellBadge-sign';
    this._sign.setAttribute('aria-hidden', 'true');
    this._text.className = 'aliquot-CellBadge-text';
    this._why.className = 'aliquot-CellBadge-why';
    this._bar.className = 'aliquot-Bar aliquot-CellBadge-bar';
    this._bar.setAttribute('role', 'progressbar');
    this._part.className = 'aliquot-Bar-part aliquot-mod-used';
    this._bar.append(this._part);
    const said = document.createElement('div');
    said.className = 'aliquot-CellBadge-said';
    said.append(this._text, this._bar, this._why);
    this.node.append(this._sign, said);
    _cell.outputArea.model.changed.connect(this._onOutputs, this);
    this._onOutputs();
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._cell.outputArea.model.changed.disconnect(this._onOutputs, this);
    this._cell.outputArea.widgets.forEach(output => output.removeClass(TOLD));
    super.dispose();
  }

  /** Add a badge to a cell; null for a cell without content, such as one far out of view. */
  static into(cell: CodeCell): CellBadge | null {
    const layout = cell.layout as PanelLayout;
    const at = cell.isPlaceholder() ? -1 : layout.widgets.findIndex(part => part.hasClass(OUTPUTS));
    if (at < 0) {
      return null;
    }
    const badge = new CellBadge(cell);
    layout.insertWidget(at, badge);
    return badge;
  }

  /** `isFirst`: the kernel waits for this cell, and the other cells wait for it. */
  tell(wait: IWait, isFirst: boolean): void {
    this.toggleClass('aliquot-mod-behind', !isFirst);
    this.node.dataset.kind = wait.kind;
    this.node.title = isFirst ? '' : wait.text;
    replaceText(this._text, wait.text);
    replaceText(this._why, wait.why ?? '');
    this._bar.hidden = wait.progress === null;
    if (wait.progress !== null) {
      const { done, total } = wait.progress;
      this._part.style.width = percent(done, total);
      this._bar.setAttribute('aria-label', wait.text);
      this._bar.setAttribute('aria-valuenow', String(Math.round((100 * done) / total)));
    }
  }

  /** Called at each change of the outputs, after Lab has rendered them. */
  private _onOutputs(): void {
    const { model, widgets } = this._cell.outputArea;
    widgets.forEach((output, index) => {
      const shown = index < model.length ? model.get(index) : null;
      output.toggleClass(TOLD, shown?.type === 'stream' && isNotice(String(shown.data[STDERR] ?? '')));
    });
  }

  private readonly _sign = document.createElement('span');
  private readonly _text = document.createElement('span');
  private readonly _why = document.createElement('span');
  private readonly _bar = document.createElement('span');
  private readonly _part = document.createElement('span');
}

/** Change the text only if it differs, so that a selection in it stays. */
function replaceText(node: HTMLElement, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}
