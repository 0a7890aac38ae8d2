// Connects notebooks to cells that already run: after a reload, in another browser, after a crash
// of the page.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContext } from '@jupyterlab/apputils';
import { IChangedArgs } from '@jupyterlab/coreutils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { Poll } from '@lumino/polling';

import { AliquotClient } from '../../client/client';
import { ComingBack } from '../../sessions/coming_back';
import { IGpuKernels } from '../../gpu_kernels';
import { IRunningCells, StatusError, TRANSLATION_DOMAIN } from '../../tokens';
import { CellOutputs } from '../../widgets/notebook/cell_outputs';

/** The number of retries for a server that is away, and the first delay, which doubles. */
const TRIES = 5;
const FIRST_WAIT_MS = 500;

/** The interval at which a running cell is checked for an input request. */
const LOOK_MS = 2000;
const LONGEST_LOOK_MS = 30000;

/** States of a kernel after which none of its cells finishes. */
const ENDS: readonly Kernel.Status[] = ['restarting', 'autorestarting', 'terminating', 'dead'];

export const comingBack = (
  _: JupyterFrontEnd,
  { client }: IGpuKernels,
  tracker: INotebookTracker,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const follow = (__: unknown, panel: NotebookPanel): void => void new Follower(panel, client, trans);
  tracker.forEach(panel => follow(tracker, panel));
  tracker.widgetAdded.connect(follow);
};

/** Replays the kept outputs of each kernel that one notebook's session gets. */
class Follower {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _client: AliquotClient,
    private readonly _trans: TranslationBundle
  ) {
    const { sessionContext } = _panel;
    sessionContext.kernelChanged.connect(this._onKernelChanged, this);
    _panel.disposed.connect(() => {
      sessionContext.kernelChanged.disconnect(this._onKernelChanged, this);
      this._leave();
    });
    this._come(sessionContext.session?.kernel ?? null);
  }

  private _onKernelChanged(
    _: ISessionContext,
    { oldValue, newValue }: IChangedArgs<Kernel.IKernelConnection | null, Kernel.IKernelConnection | null, 'kernel'>
  ): void {
    if (newValue !== null && newValue === oldValue) {
      return; // a new name of the same kernel: its cells go on
    }
    this._leave();
    this._come(newValue);
  }

  private _come(kernel: Kernel.IKernelConnection | null): void {
    if (kernel === null || kernel.isDisposed) {
      return;
    }
    // The notebook disconnects from its kernel; the outputs shown stay.
    const outputs = new CellOutputs(this._panel, kernel, this._trans, msgId => story.leave(msgId));
    const story = new ComingBack(outputs);
    const hear = (_: unknown, message: KernelMessage.IIOPubMessage): void => story.hear(message);
    const look = (_: unknown, status: Kernel.Status): void => void (ENDS.includes(status) && story.end());
    const leave = (): void => {
      kernel.iopubMessage.disconnect(hear);
      kernel.statusChanged.disconnect(look);
    };
    kernel.iopubMessage.connect(hear);
    kernel.statusChanged.connect(look);
    this._leave = () => {
      leave();
      story.end();
      outputs.leave();
      this._leave = () => undefined;
    };
    const isHere = (): boolean => !this._panel.isDisposed && this._panel.sessionContext.session?.kernel === kernel;
    void this._begin(kernel, story, outputs, isHere).then(isFollowed =>
      isFollowed ? this._look(kernel, story, isHere) : leave()
    );
  }

  /** Whether there is anything to follow. */
  private async _begin(
    kernel: Kernel.IKernelConnection,
    story: ComingBack,
    outputs: CellOutputs,
    isHere: () => boolean
  ): Promise<boolean> {
    await this._panel.context.ready;
    await connected(kernel);
    const answer = await this._ask(kernel, isHere);
    if (answer === null || !isHere()) {
      return false;
    }
    story.begin(answer, outputs.notebook());
    return !story.isEmpty;
  }

  /**
   * Poll while a cell runs: its input requests go only to the page that ran the cell, so that this
   * page must fetch them.
   */
  private _look(kernel: Kernel.IKernelConnection, story: ComingBack, isHere: () => boolean): void {
    const poll = new Poll({
      factory: async () => {
        const before = story.moment;
        const cells = await this._client.openCells(kernel.id);
        if (story.moment === before && isHere()) {
          story.look(cells);
        }
      },
      frequency: { interval: LOOK_MS, backoff: true, max: LONGEST_LOOK_MS },
      name: `@jupyter-aliquot/labextension:coming-back:${kernel.id}`,
      standby: () => !story.isWaiting || document.hidden
    });
    poll.ticked.connect(() => void (isHere() && story.isWaiting ? undefined : poll.dispose()));
  }

  private async _ask(kernel: Kernel.IKernelConnection, isHere: () => boolean): Promise<IRunningCells | null> {
    for (let tries = 0, wait = FIRST_WAIT_MS; tries < TRIES && isHere(); tries += 1, wait *= 2) {
      try {
        return await this._client.runningCells(kernel.id);
      } catch (error) {
        if (!(error instanceof StatusError) || error.kind === 'not-installed' || error.kind === 'forbidden') {
          return null;
        }
        await new Promise(resolve => setTimeout(resolve, wait));
      }
    }
    return null;
  }

  private _leave: () => void = () => undefined;
}

/** Wait until the kernel's messages arrive here, or never will. */
function connected(kernel: Kernel.IKernelConnection): Promise<void> {
  return new Promise(resolve => {
    const look = (): void => {
      if (kernel.connectionStatus === 'connected' || kernel.isDisposed) {
        kernel.connectionStatusChanged.disconnect(look);
        kernel.disposed.disconnect(look);
        resolve();
      }
    };
    kernel.connectionStatusChanged.connect(look);
    kernel.disposed.connect(look);
    look();
  });
}
