// The administrator's view: a page with a place in the launcher too, all for administrators alone.
// Its code is loaded when it is opened.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IGpuKernels } from '../gpu_kernels';
import { GpuKernelsModel } from '../model/model';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { gpuIcon } from '../widgets/elements/icons';
import { commandPage } from './command_page';

export const administration = (
  app: JupyterFrontEnd,
  gpus: IGpuKernels,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null,
  launcher: ILauncher | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const command = CommandIDs.administration;
  page(app, gpus, palette, restorer, translator);
  whenAdmin(gpus.model, () => {
    app.commands.notifyCommandChanged(command);
    launcher?.add({ command, category: trans.__('Other'), rank: 90 });
  });
};

const page = commandPage((trans, { client, model }) => ({
  id: 'aliquot-administration',
  command: CommandIDs.administration,
  title: trans.__('GPU Administration'),
  show: trans.__('Show GPU Administration'),
  caption: trans.__('Show nodes, kernels of all users, teams and the queue, and act on them'),
  name: trans.__('GPU administration'),
  icon: gpuIcon,
  isVisible: () => isAdmin(model),
  content: async () => {
    const [{ AdminModel }, { AdminArea }] = await Promise.all([
      import('../admin/admin_model'),
      import('../widgets/admin/admin_area')
    ]);
    return new AdminArea(new AdminModel(client), trans);
  }
}));

function isAdmin(model: GpuKernelsModel): boolean {
  return model.state.status?.user.role === 'admin';
}

/** Call back once, when the server has told that the user is an administrator. */
function whenAdmin(model: GpuKernelsModel, call: () => void): void {
  const look = (): void => {
    if (isAdmin(model)) {
      model.changed.disconnect(look);
      call();
    }
  };
  model.changed.connect(look);
  look();
}
