// The dialog in which a kernel is picked, with its size: in the place of Lab's own, which is disabled in package.json.

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISessionContext, ISessionContextDialogs } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IGpuKernels } from '../gpu_kernels';
import { KnownSpecs } from '../sizes/known_specs';
import { PluginIDs } from '../tokens';
import { SizedDialogs } from '../widgets/notebook/kernel_dialogs';

/** Its settings are the restart dialog's, and stay in force. */
const STOCK_PLUGIN_ID = '@jupyterlab/apputils-extension:sessionDialogs';

export const picker: JupyterFrontEndPlugin<ISessionContext.IDialogs> = {
  id: PluginIDs.picker,
  description: 'Provides the dialogs of sessions; a kernel is picked together with its size.',
  autoStart: true,
  requires: [IGpuKernels],
  optional: [ITranslator, ISettingRegistry],
  provides: ISessionContextDialogs,
  activate: (
    app: JupyterFrontEnd,
    { client, model }: IGpuKernels,
    translator: ITranslator | null,
    settingRegistry: ISettingRegistry | null
  ): ISessionContext.IDialogs => {
    const { kernelspecs } = app.serviceManager;
    const known = kernelspecs instanceof KnownSpecs ? kernelspecs : new KnownSpecs(kernelspecs, () => client.sizes());
    // The settings editor shows what was loaded, and nobody else loads a disabled plugin's.
    void settingRegistry?.load(STOCK_PLUGIN_ID).catch(() => undefined);
    return new SizedDialogs({ known, client, model, translator: translator ?? nullTranslator, settingRegistry });
  }
};
