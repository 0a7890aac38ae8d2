// Follows the kernels of all notebooks, those that are open and those that come.

import { ISessionContext } from '@jupyterlab/apputils';
import { IChangedArgs } from '@jupyterlab/coreutils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';

/** Begins to follow a kernel of a notebook, and returns what ends that. */
export type FollowKernel = (panel: NotebookPanel, kernel: Kernel.IKernelConnection) => () => void;

/** Call back for each notebook, the open ones first. */
export function eachNotebook(tracker: INotebookTracker, call: (panel: NotebookPanel) => unknown): void {
  tracker.forEach(call);
  tracker.widgetAdded.connect((_, panel) => void call(panel));
}

/** Follow each kernel that the session of a notebook gets, until it has another or the notebook is closed. */
export function eachKernel(tracker: INotebookTracker, follow: FollowKernel): void {
  eachNotebook(tracker, panel => {
    const { sessionContext } = panel;
    let leave = (): void => undefined;
    const come = (kernel: Kernel.IKernelConnection | null): void => {
      leave();
      leave = kernel === null || kernel.isDisposed ? () => undefined : follow(panel, kernel);
    };
    const change = (
      _: ISessionContext,
      { oldValue, newValue }: IChangedArgs<Kernel.IKernelConnection | null, Kernel.IKernelConnection | null, 'kernel'>
    ): void => {
      // The same kernel with a new name: its cells go on.
      if (newValue === null || newValue !== oldValue) {
        come(newValue);
      }
    };
    sessionContext.kernelChanged.connect(change);
    panel.disposed.connect(() => {
      sessionContext.kernelChanged.disconnect(change);
      come(null);
    });
    come(sessionContext.session?.kernel ?? null);
  });
}
