// A size is part of a kernel's name, so that a resize changes both. Jupyter's pages read a kernel's
// name once, when they connect. This plugin refreshes Lab's lists of kernels and sessions after a
// change of size, and passes the new names to the documents that are open on these kernels.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { NotebookPanel } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';

import { IGpuKernels } from '../../gpu_kernels';
import { renamed } from '../../sessions/kernel_names';
import { showKernelName, withContexts } from '../../widgets/notebook/open_contexts';

export const kernelNames = ({ serviceManager, shell }: JupyterFrontEnd, { model }: IGpuKernels): void => {
  const { kernels, sessions, kernelspecs } = serviceManager;
  const readNames = (): void => {
    // Lab shows a lost connection itself, and reads its lists again every ten seconds.
    void Promise.allSettled([kernels.refreshRunning(), sessions.refreshRunning()]);
  };
  const giveNames = (models: Iterable<Kernel.IModel>): void => {
    const names = new Map(Array.from(models, ({ id, name }) => [id, name]));
    for (const [widget, context] of withContexts(shell.widgets('main'))) {
      const name = names.get(context.session?.kernel?.id ?? '');
      if (name !== undefined && renamed(context, name, kernelspecs, widget instanceof NotebookPanel)) {
        showKernelName(widget);
      }
    }
  };
  model.happened.connect((_, { kind, resize }) => {
    if (kind === 'resize' && resize?.state === 'granted') {
      readNames();
    }
  });
  // Without the stream of events, a changed size is found in the status.
  model.kernelChanged.connect((_, { id, kernel }) => {
    const known = Array.from(kernels.running()).find(one => one.id === id);
    if (kernel !== null && known !== undefined && kernel.name !== known.name) {
      readNames();
    }
  });
  kernels.runningChanged.connect((_, models) => giveNames(models));
};
