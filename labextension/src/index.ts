// Registration only: makes the model and the panel, and joins them to Lab's shell, palette, settings and restorer.

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { StatusClient } from './client';
import { GpuKernelsModel } from './model';
import { CommandIDs, PLUGIN_ID, TRANSLATION_DOMAIN } from './tokens';
import { gpuIcon } from './widgets/icons';
import { GpuKernelsPanel } from './widgets/panel';

/** Below "Running Terminals and Kernels" (200), above the table of contents (400). */
const SIDEBAR_RANK = 250;

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN_ID,
  description: 'Adds the sidebar panel of GPUs and of the kernels that share them.',
  autoStart: true,
  optional: [ICommandPalette, ILayoutRestorer, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    settings: ISettingRegistry | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const model = new GpuKernelsModel({ source: new StatusClient(app.serviceManager.serverSettings) });
    const panel = new GpuKernelsPanel({
      model,
      translator: translator ?? nullTranslator,
      open: path => void app.commands.execute('docmanager:open', { path })
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
    void followSettings(settings, model);
  }
};

/** Takes the refresh interval from Lab's settings, now and whenever it changes. */
async function followSettings(registry: ISettingRegistry | null, model: GpuKernelsModel): Promise<void> {
  try {
    const settings = await registry?.load(PLUGIN_ID);
    const take = (): void => {
      model.intervalSeconds = settings?.get('refreshInterval').composite as number;
    };
    if (settings) {
      take();
      settings.changed.connect(take);
    }
  } catch (error) {
    console.warn('aliquot: the settings could not be read, the defaults are in force.', error);
  }
}

export default plugin;
