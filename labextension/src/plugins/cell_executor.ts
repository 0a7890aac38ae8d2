// Runs cells as Lab does, save that a cell waits for a kernel that is on its way, where Lab's own would drop it.

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ICodeCellModel, isCodeCellModel } from '@jupyterlab/cells';
import { INotebookCellExecutor, runCell } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { attached, attachment } from '../attachment';
import { PluginIDs, TRANSLATION_DOMAIN } from '../tokens';

export const cellExecutor: JupyterFrontEndPlugin<INotebookCellExecutor> = {
  id: PluginIDs.cellExecutor,
  description: 'Runs cells, and lets those wait that are run before their kernel is there.',
  autoStart: true,
  provides: INotebookCellExecutor,
  optional: [ITranslator],
  activate: (_: JupyterFrontEnd, translator: ITranslator | null): INotebookCellExecutor =>
    new PatientExecutor((translator ?? nullTranslator).load(TRANSLATION_DOMAIN))
};

class PatientExecutor implements INotebookCellExecutor {
  constructor(private readonly _trans: TranslationBundle) {}

  async runCell(options: INotebookCellExecutor.IRunCellOptions): Promise<boolean> {
    const { cell, sessionContext } = options;
    const { model } = cell;
    if (sessionContext && isCodeCellModel(model) && model.sharedModel.getSource().trim()) {
      if (attachment(sessionContext) === 'coming') {
        model.executionState = 'running';
        if (!(await attached(sessionContext))) {
          this._drop(model);
          return false;
        }
        if (cell.isDisposed) {
          return false;
        }
      }
    }
    return runCell(options);
  }

  /** Says once, for all the cells of one turn, why they were not run. */
  private _drop(model: ICodeCellModel): void {
    if (!model.isDisposed) {
      model.executionState = 'idle';
      this._dropped += 1;
    }
    if (this._dropped === 1) {
      setTimeout(() => this._tell(), 0);
    }
  }

  private _tell(): void {
    const count = this._dropped;
    this._dropped = 0;
    Notification.warning(
      this._trans._n(
        'A cell was not run: its notebook has got no kernel. Pick one, then run the cell again.',
        '%1 cells were not run: their notebook has got no kernel. Pick one, then run them again.',
        count
      ),
      { autoClose: false }
    );
  }

  private _dropped = 0;
}
