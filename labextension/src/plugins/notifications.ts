// Notifications about the user's kernels, connected to Lab's settings, documents and sessions.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';

import { IGpuKernels } from '../gpu_kernels';
import { GpuKernelsModel, notebookPath } from '../model/model';
import { NewsReader, Remembered } from '../model/news';
import { RefusedComms } from '../sessions/refused_comms';
import { storage } from '../base/storage';
import { CommandIDs, IKernel, PLUGIN_ID, TRANSLATION_DOMAIN } from '../tokens';
import { Announcer, tellFailure } from '../widgets/notifications/announce';
import { InvitationAnnouncer } from '../widgets/notifications/invitation_news';
import { describeMemory } from '../widgets/notifications/memory_news';
import { contextAt } from '../widgets/notebook/open_contexts';

export const notifications = (
  app: JupyterFrontEnd,
  { model, client }: IGpuKernels,
  settings: ISettingRegistry | null,
  translator: ITranslator | null,
  notebooks: INotebookTracker | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const path = (kernel: IKernel): string | null => {
    const { status } = model.state;
    return status && notebookPath(kernel, status);
  };
  const announcer = new Announcer({
    model,
    trans,
    reader: new NewsReader(storage(`${PLUGIN_ID}:told:${app.serviceManager.serverSettings.baseUrl}`)),
    showPanel: () => void app.commands.execute(CommandIDs.show),
    open: kernel => {
      const found = path(kernel);
      return found === null ? null : () => void app.commands.execute('docmanager:open', { path: found });
    },
    openNotebookOn: ({ id }) => {
      app.commands.execute(CommandIDs.newNotebook, { kernelId: id }).catch(tellFailure);
    },
    isShown: kernel => {
      const current = app.shell.currentWidget;
      return !document.hidden && current !== null && contextAt([current], kernel.label) !== null;
    },
    describe: (news, status) =>
      describeMemory(news, status, {
        model,
        client,
        trans,
        restartAs: path(news.kernel) === null ? null : name => restartAs(app, news.kernel.label, name)
      })
  });
  const invitations = new InvitationAnnouncer({
    model,
    trans,
    told: new Remembered(storage(`${PLUGIN_ID}:invitations:${app.serviceManager.serverSettings.baseUrl}`)),
    showFolders: () => void app.commands.execute(CommandIDs.sharedFolders)
  });
  app.shell.currentChanged?.connect(() => announcer.see());
  if (notebooks) {
    followComms(notebooks, announcer, trans);
  }
  // No request before the page is there.
  void app.restored.then(() => followSettings(settings, model, [announcer, invitations]));
};

/** Notify the user when a widget's message does not reach its kernel. */
function followComms(notebooks: INotebookTracker, announcer: Announcer, trans: TranslationBundle): void {
  const refused = new RefusedComms();
  const follow = (_: unknown, { sessionContext }: NotebookPanel): void => {
    sessionContext.iopubMessage.connect((context, message) => {
      const kernelId = announcer.isEnabled ? context.session?.kernel?.id : undefined;
      if (kernelId !== undefined && refused.hear(kernelId, message, Date.now())) {
        Notification.warning(describeRefusal(context.name, trans), { autoClose: false });
      }
    });
  };
  notebooks.forEach(panel => follow(notebooks, panel));
  notebooks.widgetAdded.connect(follow);
}

/** Lab shows 140 letters of a notification; its log console has the figures. */
function describeRefusal(name: string, trans: TranslationBundle): string {
  return trans.__(
    '%1: what a widget sent was refused, for the kernel does not read. Repeat it later, or interrupt the kernel.',
    name
  );
}

/**
 * Start the kernel in the notebook's session if it is open here; else open the notebook with this
 * kernel.
 */
async function restartAs(app: JupyterFrontEnd, path: string, name: string): Promise<void> {
  const context = contextAt(app.shell.widgets('main'), path);
  if (context) {
    await context.changeKernel({ name });
  }
  await app.commands.execute('docmanager:open', context ? { path } : { path, kernel: { name } });
}

/** Take the refresh interval and the notifications from Lab's settings, now and at each change. */
async function followSettings(
  registry: ISettingRegistry | null,
  model: GpuKernelsModel,
  announcers: readonly { isEnabled: boolean }[]
): Promise<void> {
  let waiting: IDisposable | null = null;
  const wait = (tells: boolean): void => {
    announcers.forEach(one => {
      one.isEnabled = tells;
    });
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
