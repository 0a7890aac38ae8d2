// A section in Lab's panel of running terminals and kernels: GPU kernels with their state. A kernel
// opens its notebook; the line below it swaps it out or restores it. States come with the events of
// the page's model; the section asks for no figures. So the server decides whether an action is
// possible, and not the page's last status, which may be a minute old.
//
// Lab's own section "Kernels" has the same kernels by kernelspec, without their state. The panel
// repeats names by design: a notebook stands under "Open Tabs", twice under "Kernels", and later
// under "Recently Closed", in each with what that section does to it. Lab offers no way to add a
// state or an action to the items of another section, so ours does not replace or change that one.
// "Shut Down All" differs: here it ends the kernels that have a GPU and leaves the others.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { IRunningSessionManagers, IRunningSessions } from '@jupyterlab/running';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { move, obstacle } from '../model/action_rules';
import { IGpuKernels } from '../gpu_kernels';
import { GpuKernelsModel, kernelTitle, notebookPath } from '../model/model';
import { stateWord } from '../model/state_word';
import { ACTION_COMMANDS, CommandIDs, IKernel, TRANSLATION_DOMAIN } from '../tokens';
import { failureText } from '../widgets/elements/action_words';
import { gpuIcon } from '../widgets/elements/icons';
import { sizeText } from '../widgets/kernels/kernel_words';

export const running = (
  app: JupyterFrontEnd,
  { model }: IGpuKernels,
  managers: IRunningSessionManagers | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  managers?.add(section(app, model, trans));
};

function section(app: JupyterFrontEnd, model: GpuKernelsModel, trans: TranslationBundle): IRunningSessions.IManager {
  return {
    name: trans.__('GPU Kernels'),
    // Lab has no room for carets in a flat list: there a kernel stands without its action.
    supportsMultipleViews: true,
    running: options => listed(model).map(kernel => item(app, kernel, model, trans, options.mode !== 'list')),
    shutdownAll: () => void endAll(app, model, trans),
    refreshRunning: () => void model.refresh(),
    runningChanged: model.changed,
    shutdownLabel: trans.__('Shut Down'),
    shutdownAllLabel: trans.__('Shut Down All'),
    shutdownAllConfirmationText: trans.__('Do you want to shut down all your GPU kernels? All variables will be lost.')
  };
}

/** The user's own GPU kernels that have not ended; an administrator has a page for those of others. */
function listed(model: GpuKernelsModel): readonly IKernel[] {
  const { status } = model.state;
  return (status?.kernels ?? []).filter(
    kernel => kernel.owner === status?.user.name && kernel.gpus > 0 && kernel.state !== 'ended'
  );
}

function item(
  app: JupyterFrontEnd,
  kernel: IKernel,
  model: GpuKernelsModel,
  trans: TranslationBundle,
  isTree: boolean
): IRunningSessions.IRunningItem {
  const { status } = model.state;
  const args = { kernelId: kernel.id };
  const path = status && notebookPath(kernel, status);
  const isOff = kernel.residency?.mode === 'off';
  const canMove = isTree && ['on_gpu', 'swapped_out', 'checkpointed'].includes(kernel.state) && !isOff;
  const canEnd = status !== null && obstacle('shutDown', kernel, status) === null;
  return {
    icon: () => gpuIcon,
    label: () => kernelTitle(kernel),
    labelTitle: () => `${kernel.label || kernel.id} · ${sizeText(kernel, trans)}`,
    detail: () => stateWord(kernel, trans),
    context: kernel.id,
    open: () => {
      const command = path === null ? CommandIDs.show : CommandIDs.openNotebook;
      void app.commands.execute(command, path === null ? {} : args);
    },
    ...(canEnd ? { shutdown: () => void run(app, CommandIDs.shutDown, kernel.id, trans) } : {}),
    ...(canMove ? { children: [moving(app, kernel, trans)] } : {})
  };
}

/** The line below a kernel that moves its memory. */
function moving(app: JupyterFrontEnd, kernel: IKernel, trans: TranslationBundle): IRunningSessions.IRunningItem {
  const action = move(kernel);
  const text = action === 'restore' ? trans.__('Restore its memory') : trans.__('Swap out its memory');
  return {
    icon: () => gpuIcon,
    label: () => text,
    context: `${kernel.id} ${action}`,
    open: () => void run(app, ACTION_COMMANDS[action], kernel.id, trans)
  };
}

/** Run a command on the kernel, or tell why the server refuses it. */
async function run(app: JupyterFrontEnd, command: string, kernelId: string, trans: TranslationBundle): Promise<void> {
  try {
    await app.commands.execute(command, { kernelId });
  } catch (error) {
    Notification.error(failureText(error, trans), { autoClose: false });
  }
}

/** End all of the user's kernels, and tell which stay; Lab asked for confirmation already. */
async function endAll(
  { serviceManager }: JupyterFrontEnd,
  model: GpuKernelsModel,
  trans: TranslationBundle
): Promise<void> {
  const { kernels } = serviceManager;
  const own = listed(model).filter(kernel => kernel.name !== '');
  const ends = await Promise.allSettled(own.map(kernel => kernels.shutdown(kernel.id)));
  const failed = ends.filter((end): end is PromiseRejectedResult => end.status === 'rejected');
  const [first] = failed;
  if (first !== undefined) {
    const why = failureText(first.reason, trans);
    Notification.error(trans.__('Not shut down: %1 of %2 kernels. %3', String(failed.length), String(own.length), why), {
      autoClose: false
    });
  }
  await model.refresh();
}
