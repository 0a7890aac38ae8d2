// The remedies of a wait, shown below a cell's badge. Each notebook has one, which moves from cell
// to cell.

import { NotebookPanel } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import { IDisposable } from '@lumino/disposable';
import { PanelLayout, Widget } from '@lumino/widgets';
import * as React from 'react';

import { AliquotClient } from '../../client/client';
import { GpuKernelsModel } from '../../model/model';
import { ICommands } from './actions';
import { WaysOut } from './ways_out';

export interface ICellWaysOptions {
  model: GpuKernelsModel;
  client: AliquotClient;
  commands: ICommands;
  trans: TranslationBundle;
}

export class CellWays implements IDisposable {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _options: ICellWaysOptions
  ) {}

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._widget?.dispose();
  }

  /** Move below this badge; null removes it from the notebook. */
  follow(badge: Widget | null): void {
    const layout = badge?.parent?.layout;
    if (badge === null || !(layout instanceof PanelLayout)) {
      this._widget?.dispose();
      this._widget = null;
      return;
    }
    if (this._widget === null || this._widget.isDisposed) {
      this._widget = this._make();
    }
    if (this._widget.parent !== badge.parent) {
      layout.insertWidget(layout.widgets.indexOf(badge) + 1, this._widget);
    }
  }

  private _make(): Widget {
    const { model, ...rest } = this._options;
    const { sessionContext: session } = this._panel;
    const widget = ReactWidget.create(
      <UseSignal signal={model.changed} initialArgs={model.state}>
        {() => {
          const id = session.session?.kernel?.id;
          const kernel = id === undefined ? null : model.kernel(id);
          const { status } = model.state;
          return kernel && status && <WaysOut {...rest} {...{ kernel, status, session }} notebook={this._panel} />;
        }}
      </UseSignal>
    );
    widget.addClass('aliquot-CellWays');
    // Otherwise Enter on a button would edit the cell.
    widget.node.dataset.lmSuppressShortcuts = '';
    return widget;
  }

  private _widget: Widget | null = null;
  private _isDisposed = false;
}
