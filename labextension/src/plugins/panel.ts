// The sidebar panel: joined to Lab's shell, palette, settings and restorer.

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';

import { IGpuKernels } from '../gpu_kernels';
import { GpuKernelsModel } from '../model';
import { NewsReader } from '../news';
import { storage } from '../storage';
import { CommandIDs, PLUGIN_ID, PluginIDs, TRANSLATION_DOMAIN } from '../tokens';
import { Announcer } from '../widgets/announce';
import { gpuIcon } from '../widgets/icons';
import { GpuKernelsPanel } from '../widgets/panel';

/** Below "Running Terminals and Kernels" (200), above the table of contents (400). */
const SIDEBAR_RANK = 250;

export const panel: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.panel,
  description: 'Adds the sidebar panel of GPUs and of the kernels that share them.',
  autoStart: true,
  requires: [IGpuKernels],
  optional: [ICommandPalette, ILayoutRestorer, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    { model }: IGpuKernels,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    settings: ISettingRegistry | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const { serverSettings } = app.serviceManager;
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
    const reader = new NewsReader(storage(`${PLUGIN_ID}:told:${serverSettings.baseUrl}`));
    const announcer = new Announcer(model, reader, trans, () => app.shell.activateById(panel.id));
    void followSettings(settings, model, announcer);
  }
};

/** Takes refresh interval and notifications from Lab's settings, now and whenever they change. */
async function followSettings(
  registry: ISettingRegistry | null,
  model: GpuKernelsModel,
  announcer: Announcer
): Promise<void> {
  let waiting: IDisposable | null = null;
  const wait = (tells: boolean): void => {
    announcer.isEnabled = tells;
    if (tells !== (waiting !== null)) {
      waiting?.dispose();
      waiting = tells ? model.waitForNews() : null;
    }
  };
  try {
    const settings = await registry?.load(PLUGIN_ID);
    const take = (): void => {
      model.intervalSeconds = settings?.get('refreshInterval').composite as number;
      wait(settings?.get('notifications').composite as boolean);
    };
    if (settings) {
      take();
      settings.changed.connect(take);
      return;
    }
  } catch (error) {
    console.warn('aliquot: the settings could not be read, the defaults are in force.', error);
  }
  wait(true);
}
