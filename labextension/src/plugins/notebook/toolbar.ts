// The GPU item in the toolbar of a notebook or console, in Lab and in Notebook 7.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContext, ISessionContextDialogs, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { AttachedKernel } from '../../sessions/attached_kernel';
import { IGpuKernels } from '../../gpu_kernels';
import { TRANSLATION_DOMAIN } from '../../tokens';
import { KernelItem } from '../../widgets/notebook/kernel_item';
import { KernelPopovers } from '../../widgets/notebook/kernel_popover';

/** The name in schema/toolbar.json. */
const ITEM = 'aliquotKernel';

/** The widgets that have a toolbar and a kernel. */
interface IWithSession extends Widget {
  readonly sessionContext: ISessionContext;
}

export const toolbar = (
  app: JupyterFrontEnd,
  { model, client }: IGpuKernels,
  registry: IToolbarWidgetRegistry,
  dialogs: ISessionContextDialogs | null,
  notebooks: INotebookTracker | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const popovers = new KernelPopovers({ model, client, commands: app.commands, trans, dialogs, notebooks });
  const press = (item: KernelItem): void => popovers.press(item);
  const make = ({ sessionContext }: IWithSession): KernelItem => {
    const attached = new AttachedKernel(model, sessionContext);
    const item = new KernelItem({ model, trans, place: 'toolbar', attached, press });
    item.disposed.connect(() => attached.dispose());
    return item;
  };
  registry.addFactory<IWithSession>('Notebook', ITEM, make);
  registry.addFactory<IWithSession>('ConsolePanel', ITEM, make);
};
