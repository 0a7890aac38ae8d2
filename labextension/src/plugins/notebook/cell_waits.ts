// Badges in every notebook on cells that wait for their kernel's GPU, with the reason and the
// remedies.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IGpuKernels } from '../../gpu_kernels';
import { TRANSLATION_DOMAIN } from '../../tokens';
import { CellBadges } from '../../widgets/notebook/cell_badges';
import { eachNotebook } from './notebook_kernels';

export const cellWaits = (
  { commands }: JupyterFrontEnd,
  { model, client }: IGpuKernels,
  notebooks: INotebookTracker,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  // Each set of badges is disposed of with its notebook.
  eachNotebook(notebooks, panel => new CellBadges(panel, { model, client, commands, trans }));
};
