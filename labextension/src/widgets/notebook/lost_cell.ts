// A cell that its kernel never got ends with an error, as one that failed, and can be run again.

import { CodeCell } from '@jupyterlab/cells';
import { NotebookPanel } from '@jupyterlab/notebook';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

/** The name of the error, as gateways have it. */
const NOT_RUN = 'CellNotRun';

/** End the notebook's run of this request, if a cell still shows it. */
export function markLost(
  panel: NotebookPanel,
  kernel: Kernel.IKernelConnection,
  msgId: string,
  trans: TranslationBundle
): void {
  for (const cell of panel.content.widgets) {
    const future = cell instanceof CodeCell ? cell.outputArea.future : null;
    if (!future || future.isDisposed || future.msg.header.msg_id !== msgId) {
      continue;
    }
    const words = trans.__(
      'The connection was lost while this cell was sent, and the kernel does not have it. It was not run: run it again.'
    );
    void future.onIOPub(
      KernelMessage.createMessage<KernelMessage.IErrorMsg>({
        msgType: 'error',
        channel: 'iopub',
        session: kernel.clientId,
        parentHeader: future.msg.header,
        content: { ename: NOT_RUN, evalue: words, traceback: [`${NOT_RUN}: ${words}`] }
      })
    );
    future.dispose(); // Lab's cell takes it for the end of the run
  }
}

/** End the runs of cells that waited in the page when their kernel was lost; a cell that runs anew goes on. */
export function markUnsent(panel: NotebookPanel, cellIds: ReadonlySet<string | undefined>, trans: TranslationBundle): void {
  for (const cell of panel.content.widgets) {
    const future = cell instanceof CodeCell ? cell.outputArea.future : null;
    if (!(cell instanceof CodeCell) || !cellIds.has(cell.model.id) || (future && !future.isDisposed)) {
      continue;
    }
    const words = trans.__('The kernel was lost before this cell could be sent to it. It was not run: run it again.');
    cell.model.clearExecution();
    cell.model.outputs.add({ output_type: 'error', ename: NOT_RUN, evalue: words, traceback: [`${NOT_RUN}: ${words}`] });
  }
}
