// The sidebar panel: joined to Lab's shell, palette and restorer.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IGpuKernels } from '../gpu_kernels';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { gpuIcon } from '../widgets/elements/icons';
import { GpuKernelsPanel } from '../widgets/panel';
import { addShowCommand } from './command_page';

/** Below "Running Terminals and Kernels" (200), above the table of contents (400). */
const SIDEBAR_RANK = 250;

export const panel = (
  app: JupyterFrontEnd,
  { model, client }: IGpuKernels,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const panel = new GpuKernelsPanel({
    model,
    client,
    commands: app.commands,
    translator: translator ?? nullTranslator
  });
  app.shell.add(panel, 'left', { rank: SIDEBAR_RANK, type: 'GPU Kernels' });
  restorer?.add(panel, panel.id);
  const facts = {
    command: CommandIDs.show,
    title: trans.__('GPU Kernels'),
    show: trans.__('Show GPU Kernels'),
    caption: trans.__('Show the GPUs and the kernels that share them'),
    icon: gpuIcon
  };
  addShowCommand(app, palette, trans, facts, () => app.shell.activateById(panel.id));
};
