// Asks the node to prefetch a swapped-out kernel when the user clicks or types in one of its cells, for
// a run is likely to follow. Lab moves the focus by itself too, which asks for nothing.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { IGpuKernels } from '../../gpu_kernels';
import { PrefetchRule } from '../../sessions/prefetch';
import { eachNotebook } from './notebook_kernels';

/** Lab's class of cells that can be run. */
const CELL = '.jp-CodeCell';

export const prefetch = (_app: JupyterFrontEnd, { model, client }: IGpuKernels, notebooks: INotebookTracker): void => {
  const rule = new PrefetchRule();
  const turnTo = (panel: NotebookPanel): void => {
    const { status } = model.state;
    const id = panel.sessionContext.session?.kernel?.id;
    const kernel = id === undefined ? null : model.kernel(id);
    if (kernel && status && rule.mayPrefetch(kernel, status.user.name, performance.now())) {
      // Best effort: without it the kernel is restored when the cell runs.
      client.prefetch(kernel.id).catch(() => undefined);
    }
  };
  eachNotebook(notebooks, panel => {
    const onTouch = (event: Event): void => {
      if (event.target instanceof Element && event.target.closest(CELL)) {
        turnTo(panel);
      }
    };
    // The listeners end with their node.
    panel.content.node.addEventListener('pointerdown', onTouch);
    panel.content.node.addEventListener('keydown', onTouch);
  });
};
