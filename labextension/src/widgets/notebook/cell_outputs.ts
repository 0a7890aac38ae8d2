// Shows replayed outputs in the cells of one notebook, through Lab's own output areas, so that they
// look, update and are saved like any other output.

import { CodeCell, isCodeCellModel } from '@jupyterlab/cells';
import { NotebookPanel } from '@jupyterlab/notebook';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

import { IOpenedNotebook, IPublished, IStage, Remark } from '../../sessions/coming_back';
import { IRunningCell } from '../../tokens';
import { KeptFuture } from './kept_future';

/** The first minor version of the notebook format with cell ids in the file. */
const IDS_SINCE = 5;

export class CellOutputs implements IStage {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _kernel: Kernel.IKernelConnection,
    private readonly _trans: TranslationBundle,
    /** Called with the run's id when its cell runs something newer or is removed. */
    private readonly _left: (msgId: string) => void
  ) {}

  notebook(): IOpenedNotebook {
    const { content, context } = this._panel;
    const cells = content.widgets.flatMap(({ model }) =>
      isCodeCellModel(model)
        ? [
            {
              id: model.sharedModel.getId(),
              code: model.sharedModel.getSource(),
              hasOutput: model.outputs.length > 0,
              executionCount: model.executionCount
            }
          ]
        : []
    );
    const savedAt = Date.parse(context.contentsModel?.last_modified ?? '') || 0;
    const { nbformat, nbformatMinor } = context.model;
    return { cells, savedAt, hasLastingIds: nbformat > 4 || nbformatMinor >= IDS_SINCE };
  }

  /**
   * A trusted cell runs scripts of its outputs; this user did not run the cells of another user's
   * kernel.
   */
  take(cellId: string, run: IRunningCell, isTrusted: boolean): boolean {
    const cell = this._cell(cellId);
    // A run that this page started and whose connection is not lost is newer, or Lab shows it
    // itself.
    if (cell === undefined || (cell.outputArea.future && !cell.outputArea.future.isDisposed)) {
      return false;
    }
    const { sharedModel } = cell.model;
    const kept = { msgId: run.msg_id, cellId, code: sharedModel.getSource() };
    const future = new KeptFuture(kept, this._kernel, () => {
      this._futures.delete(cellId);
      this._left(run.msg_id);
    });
    sharedModel.transact(() => cell.model.clearExecution(), false);
    cell.outputHidden = false;
    cell.model.trusted = isTrusted;
    cell.outputArea.future = future;
    cell.model.executionState = 'running';
    this._futures.set(cellId, future);
    return true;
  }

  show(cellId: string, message: IPublished): void {
    const whole = { channel: 'iopub', buffers: [], metadata: {}, ...message };
    this._futures.get(cellId)?.show(whole as unknown as KernelMessage.IIOPubMessage);
  }

  remark(cellId: string, remark: Remark): void {
    const text = this._words(remark);
    const node = document.createElement('div');
    node.className = 'aliquot-remark';
    node.textContent = text;
    this.show(cellId, {
      header: { msg_id: '', msg_type: 'display_data' },
      parent_header: {},
      content: { data: { 'text/html': node.outerHTML, 'text/plain': text }, metadata: {} }
    });
  }

  /** Show Lab's input box for an input request; any page may answer it. */
  ask(cellId: string, question: NonNullable<IRunningCell['input']>): void {
    const future = this._futures.get(cellId);
    if (future !== undefined) {
      const message = KernelMessage.createMessage<KernelMessage.IInputRequestMsg>({
        msgType: 'input_request',
        channel: 'stdin',
        session: this._kernel.clientId,
        parentHeader: future.msg.header,
        content: { ...question }
      });
      this._kernel.hasPendingInput = true;
      void future.onStdin(message);
    }
  }

  settle(cellId: string, executionCount: number | null): void {
    const cell = this._cell(cellId);
    if (cell !== undefined) {
      // Set the execution count first: Lab's cell takes it as the end of the run.
      cell.model.executionCount = executionCount;
      cell.model.executionState = 'idle';
    }
    this._futures.get(cellId)?.finish(executionCount);
  }

  /** Called when this page loses the kernel: its messages do not arrive any more. */
  leave(): void {
    [...this._futures.values()].forEach(future => future.dispose());
  }

  private _cell(cellId: string): CodeCell | undefined {
    const found = this._panel.isDisposed ? undefined : this._panel.content.widgets.find(({ model }) => model.id === cellId);
    return found instanceof CodeCell ? found : undefined;
  }

  private _words(remark: Remark): string {
    if (remark.kind === 'other-code') {
      return this._trans.__('This is the output of the code as it was when it was run; the cell has another one now.');
    }
    if (remark.messages === 1) {
      return this._trans.__('The beginning of this output was not kept.');
    }
    return this._trans.__('The beginning of this output was not kept (%1 messages).', remark.messages);
  }

  private readonly _futures = new Map<string, KeptFuture>();
}
