// Connects notebooks to cells that already run: after a reload, in another browser, after a crash
// of the page.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { Poll } from '@lumino/polling';

import { AliquotClient } from '../../client/client';
import { ComingBack } from '../../sessions/coming_back';
import { IGpuKernels } from '../../gpu_kernels';
import { IRunningCells, StatusError, TRANSLATION_DOMAIN } from '../../tokens';
import { CellOutputs } from '../../widgets/notebook/cell_outputs';
import { eachKernel } from './notebook_kernels';

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
  eachKernel(tracker, (panel, kernel) => new Follower(panel, kernel, client).follow(trans));
};

/** Replays the kept outputs of one kernel in the notebook whose session got it. */
class Follower {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _kernel: Kernel.IKernelConnection,
    private readonly _client: AliquotClient
  ) {}

  /** Begin, and return what ends it. */
  follow(trans: TranslationBundle): () => void {
    const kernel = this._kernel;
    // The notebook disconnects from its kernel; the outputs shown stay.
    const outputs = new CellOutputs(this._panel, kernel, trans, msgId => story.leave(msgId));
    const story = new ComingBack(outputs);
    const hear = (_: unknown, message: KernelMessage.IIOPubMessage): void => story.hear(message);
    const look = (_: unknown, status: Kernel.Status): void => void (ENDS.includes(status) && story.end());
    const leave = (): void => {
      kernel.iopubMessage.disconnect(hear);
      kernel.statusChanged.disconnect(look);
    };
    kernel.iopubMessage.connect(hear);
    kernel.statusChanged.connect(look);
    void this._begin(story, outputs).then(isFollowed => (isFollowed ? this._look(story) : leave()));
    return () => {
      this._isLeft = true;
      leave();
      story.end();
      outputs.leave();
    };
  }

  /** Whether the notebook still has this kernel. */
  private get _isHere(): boolean {
    return !this._isLeft && !this._panel.isDisposed && this._panel.sessionContext.session?.kernel === this._kernel;
  }

  /** Whether there is anything to follow. */
  private async _begin(story: ComingBack, outputs: CellOutputs): Promise<boolean> {
    await this._panel.context.ready;
    await connected(this._kernel);
    const answer = await this._ask();
    if (answer === null || !this._isHere) {
      return false;
    }
    story.begin(answer, outputs.notebook());
    return !story.isEmpty;
  }

  /**
   * Poll while a cell runs: its input requests go only to the page that ran the cell, so that this
   * page must fetch them.
   */
  private _look(story: ComingBack): void {
    const poll = new Poll({
      factory: async () => {
        const before = story.moment;
        const cells = await this._client.openCells(this._kernel.id);
        if (story.moment === before && this._isHere) {
          story.look(cells);
        }
      },
      frequency: { interval: LOOK_MS, backoff: true, max: LONGEST_LOOK_MS },
      name: `@jupyter-aliquot/labextension:coming-back:${this._kernel.id}`,
      standby: () => !story.isWaiting || document.hidden
    });
    poll.ticked.connect(() => void (this._isHere && story.isWaiting ? undefined : poll.dispose()));
  }

  private async _ask(): Promise<IRunningCells | null> {
    for (let tries = 0, wait = FIRST_WAIT_MS; tries < TRIES && this._isHere; tries += 1, wait *= 2) {
      try {
        return await this._client.runningCells(this._kernel.id);
      } catch (error) {
        if (!(error instanceof StatusError) || error.kind === 'not-installed' || error.kind === 'forbidden') {
          return null;
        }
        await new Promise(resolve => setTimeout(resolve, wait));
      }
    }
    return null;
  }

  private _isLeft = false;
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
