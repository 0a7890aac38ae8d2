// The sidebar panel: joined to Lab's shell, palette and restorer.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IGpuKernels } from '../gpu_kernels';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { gpuIcon } from '../widgets/elements/icons';
import { GpuKernelsPanel } from '../widgets/panel';

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

  app.commands.addCommand(CommandIDs.show, {
    label: args => (args.isPalette ? trans.__('Show GPU Kernels') : trans.__('GPU Kernels')),
    caption: trans.__('Show the GPUs and the kernels that share them'),
    icon: args => (args.isPalette ? undefined : gpuIcon),
    describedBy: { args: { type: 'object', properties: { isPalette: { type: 'boolean' } } } },
    execute: () => app.shell.activateById(panel.id)
  });
  palette?.addItem({ command: CommandIDs.show, category: trans.__('View'), args: { isPalette: true } });
};
