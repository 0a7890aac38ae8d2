// The dialog that picks a kernel and its size. It replaces Lab's own, which package.json disables.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContext } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IGpuKernels } from '../gpu_kernels';
import { KnownSpecs } from '../sizes/known_specs';
import { SizedDialogs } from '../widgets/notebook/kernel_dialogs';

/** The id of Lab's disabled plugin, whose settings still hold for its restart dialog. */
const STOCK_PLUGIN_ID = '@jupyterlab/apputils-extension:sessionDialogs';

export const picker = (
  app: JupyterFrontEnd,
  { client, model }: IGpuKernels,
  translator: ITranslator | null,
  settingRegistry: ISettingRegistry | null
): ISessionContext.IDialogs => {
  const { kernelspecs } = app.serviceManager;
  const known = kernelspecs instanceof KnownSpecs ? kernelspecs : new KnownSpecs(kernelspecs, () => client.sizes());
  // The settings editor shows loaded settings only, and a disabled plugin does not load its own.
  void app.restored.then(() => settingRegistry?.load(STOCK_PLUGIN_ID)).catch(() => undefined);
  return new SizedDialogs({ known, client, model, translator: translator ?? nullTranslator, settingRegistry });
};
