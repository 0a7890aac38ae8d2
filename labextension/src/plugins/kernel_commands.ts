// Commands about one kernel, by its id, for our buttons, menus, shortcuts and other extensions.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, ISessionContext, SessionContextDialogs, showDialog } from '@jupyterlab/apputils';
import { KernelAPI } from '@jupyterlab/services';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { obstacle } from '../model/action_rules';
import { IGpuKernels } from '../gpu_kernels';
import { kernelTitle } from '../model/model';
import { ACTION_COMMANDS, CommandAction, IKernel, TRANSLATION_DOMAIN } from '../tokens';
import { actionCaption, actionLabel, obstacleText } from '../widgets/elements/action_words';
import { contextOf } from '../widgets/notebook/open_contexts';
import { showShareDialog } from '../widgets/sharing/share_dialog';

export const kernelCommands = (
  app: JupyterFrontEnd,
  { model, client }: IGpuKernels,
  dialogs: ISessionContext.IDialogs | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const sessionDialogs = dialogs ?? new SessionContextDialogs({ translator: translator ?? nullTranslator });
  const ways: Readonly<Record<CommandAction, (kernel: IKernel) => Promise<unknown>>> = {
    open: kernel => app.commands.execute('docmanager:open', { path: kernel.label }),
    newNotebook: kernel => app.commands.execute('notebook:create-new', { kernelId: kernel.id }),
    follow: kernel => follow(app, kernel),
    swapOut: kernel => client.swapOut(kernel.id),
    restore: kernel => client.restore(kernel.id),
    postponeCulling: kernel => client.postponeCulling(kernel.id),
    share: kernel => showShareDialog({ kernel, client, model, trans }),
    restart: kernel => restart(app, sessionDialogs, kernel, trans),
    shutDown: kernel => shutDown(app, kernel, trans)
  };
  const kernelOf = (args: ReadonlyPartialJSONObject): IKernel | undefined =>
    model.state.status?.kernels.find(kernel => kernel.id === args.kernelId);
  const why = (action: CommandAction, kernel: IKernel | undefined): string | null => {
    const status = model.state.status;
    const found = kernel && status ? obstacle(action, kernel, status) : null;
    return kernel && found ? obstacleText(found, kernel, trans) : null;
  };
  for (const action of Object.keys(ways) as CommandAction[]) {
    app.commands.addCommand(ACTION_COMMANDS[action], {
      label: actionLabel(action, trans),
      caption: args => why(action, kernelOf(args)) ?? actionCaption(action, trans),
      describedBy: { args: ARGUMENTS },
      isEnabled: args => {
        const kernel = kernelOf(args);
        return kernel !== undefined && why(action, kernel) === null;
      },
      execute: async args => {
        const kernel = kernelOf(args);
        if (!kernel) {
          throw new Error(trans.__('There is no kernel %1 any more.', String(args.kernelId)));
        }
        await ways[action](kernel);
        await model.refresh();
      }
    });
  }
};

/** Lab's command for the console in front. */
const SHOW_ALL = 'console:toggle-show-all-kernel-activity';

const ARGUMENTS = {
  type: 'object',
  properties: { kernelId: { type: 'string', description: 'The id of the kernel.' } },
  required: ['kernelId']
} as const;

/** Open a console on the kernel that also shows cells that others run, if Lab has consoles. */
async function follow({ commands }: JupyterFrontEnd, kernel: IKernel): Promise<void> {
  const kernelPreference = { id: kernel.id, name: kernel.name };
  await commands.execute('console:create', { kernelPreference, name: kernelTitle(kernel), activate: true });
  if (commands.hasCommand(SHOW_ALL) && !commands.isToggled(SHOW_ALL)) {
    await commands.execute(SHOW_ALL);
  }
}

/**
 * Restart with Lab's own dialog if the kernel's document is open here, else with one of the same
 * text.
 */
async function restart(
  app: JupyterFrontEnd,
  dialogs: ISessionContext.IDialogs,
  kernel: IKernel,
  trans: TranslationBundle
): Promise<void> {
  const context = contextOf(app.shell.widgets('main'), kernel.id);
  if (context) {
    await dialogs.restart(context);
    return;
  }
  const body = trans.__('Do you want to restart the kernel of %1? All variables will be lost.', kernelTitle(kernel));
  if (await isConfirmed(trans.__('Restart Kernel?'), body, trans.__('Restart'))) {
    await KernelAPI.restartKernel(kernel.id, app.serviceManager.serverSettings);
  }
}

/** End the kernel with its session, so that its documents notice. */
async function shutDown(app: JupyterFrontEnd, kernel: IKernel, trans: TranslationBundle): Promise<void> {
  const title = kernelTitle(kernel);
  const isQueued = kernel.state === 'queued';
  const body = isQueued
    ? trans.__('%1 is queued for a GPU and has not started. It loses its place in the queue.', title)
    : trans.__('Do you want to shut down the kernel of %1? All variables will be lost.', title);
  if (!(await isConfirmed(trans.__('Shut Down Kernel?'), body, trans.__('Shut Down')))) {
    return;
  }
  const { sessions, kernels } = app.serviceManager;
  await sessions.refreshRunning();
  const session = Array.from(sessions.running()).find(one => one.kernel?.id === kernel.id);
  await (session ? sessions.shutdown(session.id) : kernels.shutdown(kernel.id));
}

async function isConfirmed(title: string, body: string, label: string): Promise<boolean> {
  const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label })];
  return (await showDialog({ title, body, buttons })).button.accept;
}
