// The administrator's view: a command, a place in the palette, the View menu and the launcher, all
// for administrators alone. Its code is loaded when it is opened for the first time.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { AliquotClient } from '../client/client';
import { IGpuKernels } from '../gpu_kernels';
import { GpuKernelsModel } from '../model/model';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { gpuIcon } from '../widgets/elements/icons';

const NAMESPACE = 'aliquot-administration';

export const administration = (
  app: JupyterFrontEnd,
  { client, model }: IGpuKernels,
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const tracker = new WidgetTracker<MainAreaWidget>({ namespace: NAMESPACE });
  const command = CommandIDs.administration;
  const isAdmin = (): boolean => model.state.status?.user.role === 'admin';
  app.commands.addCommand(command, {
    label: args => (args.isPalette ? trans.__('Show GPU Administration') : trans.__('GPU Administration')),
    caption: trans.__('Show nodes, kernels of all users, teams and the queue, and act on them'),
    icon: args => (args.isPalette ? undefined : gpuIcon),
    describedBy: { args: { type: 'object', properties: { isPalette: { type: 'boolean' } } } },
    isVisible: isAdmin,
    execute: async () => {
      const widget = tracker.currentWidget ?? (await area(client, trans));
      if (!widget.isAttached) {
        await tracker.add(widget);
        app.shell.add(widget, 'main');
      }
      app.shell.activateById(widget.id);
    }
  });
  palette?.addItem({ command, category: trans.__('View'), args: { isPalette: true } });
  whenAdmin(model, isAdmin, () => {
    app.commands.notifyCommandChanged(command);
    launcher?.add({ command, category: trans.__('Other'), rank: 90 });
  });
  void restorer?.restore(tracker, { command, name: () => NAMESPACE });
};

/** Call back once, when the server has told that the user is an administrator. */
function whenAdmin(model: GpuKernelsModel, isAdmin: () => boolean, call: () => void): void {
  const look = (): void => {
    if (isAdmin()) {
      model.changed.disconnect(look);
      call();
    }
  };
  model.changed.connect(look);
  look();
}

async function area(client: AliquotClient, trans: TranslationBundle): Promise<MainAreaWidget> {
  const [{ AdminModel }, { AdminArea }] = await Promise.all([
    import('../admin/admin_model'),
    import('../widgets/admin/admin_area')
  ]);
  const content = new AdminArea(new AdminModel(client), trans);
  const widget = new MainAreaWidget({ content });
  // The area has one accessible name for all content.
  content.node.setAttribute('aria-label', trans.__('GPU administration'));
  widget.id = NAMESPACE;
  widget.title.label = trans.__('GPU Administration');
  widget.title.icon = gpuIcon;
  widget.title.closable = true;
  widget.toolbar.hide();
  return widget;
}
