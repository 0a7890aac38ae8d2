// Runs cells as Lab does, with two differences: a cell waits for a starting kernel, where Lab would
// drop it, and a cell of a kernel that is shared read-only shows that, for the server would refuse
// it.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ICodeCellModel, isCodeCellModel } from '@jupyterlab/cells';
import { INotebookCellExecutor, runCell } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { attached, attachment } from '../../sessions/attachment';
import { IGpuKernels } from '../../gpu_kernels';
import { suffices } from '../../model/kernel_access';
import { GpuKernelsModel } from '../../model/model';
import { TRANSLATION_DOMAIN } from '../../tokens';
import { sharedHint } from '../../widgets/sharing/share_words';

export const cellExecutor = (
  _: JupyterFrontEnd,
  found: IGpuKernels | null,
  translator: ITranslator | null
): INotebookCellExecutor =>
  new PatientExecutor(found?.model ?? null, (translator ?? nullTranslator).load(TRANSLATION_DOMAIN));

class PatientExecutor implements INotebookCellExecutor {
  constructor(
    private readonly _kernels: GpuKernelsModel | null,
    private readonly _trans: TranslationBundle
  ) {}

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
      const refusal = this._refusal(sessionContext.session?.kernel?.id);
      if (refusal !== null) {
        model.clearExecution();
        model.outputs.add({ output_type: 'error', ename: '', evalue: refusal, traceback: [refusal] });
        return false;
      }
    }
    return runCell(options);
  }

  /**
   * The reason why this user may not run cells in this kernel; null if they may, or it is not
   * known.
   */
  private _refusal(id: string | undefined): string | null {
    const kernel = id === undefined ? null : (this._kernels?.kernel(id) ?? null);
    return kernel === null || suffices(kernel, 'write') ? null : sharedHint(kernel, this._trans);
  }

  /** Show the reason once for all cells of one request. */
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
