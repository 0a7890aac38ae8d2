// Marks the cells of a notebook that were lost with its connection: the kernel never got them, and
// they are not run.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContext } from '@jupyterlab/apputils';
import { IChangedArgs } from '@jupyterlab/coreutils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { AliquotClient } from '../../client/client';
import { IGpuKernels } from '../../gpu_kernels';
import { SentCells } from '../../sessions/lost_cells';
import { StatusError, TRANSLATION_DOMAIN } from '../../tokens';
import { markLost } from '../../widgets/notebook/lost_cell';

/** So many cells are asked about at once. */
const MOST_ASKED = 50;
/**
 * A server that cannot tell is asked again so many times, after twice as long each time, up to a
 * bound.
 */
const TRIES = 10;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;

/** After these Lab has given up what the kernel was asked. */
const RESTARTS: readonly Kernel.Status[] = ['restarting', 'autorestarting'];
const KNOWN: readonly Kernel.Status[] = ['idle', 'busy'];

export const lostCells = (
  _: JupyterFrontEnd,
  { client }: IGpuKernels,
  tracker: INotebookTracker,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const follow = (__: unknown, panel: NotebookPanel): void => void new Watcher(panel, client, trans);
  tracker.forEach(panel => follow(tracker, panel));
  tracker.widgetAdded.connect(follow);
};

/** Watches the connections of one notebook. */
class Watcher {
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
    this._watch(sessionContext.session?.kernel ?? null);
  }

  private _onKernelChanged(
    _: ISessionContext,
    { newValue }: IChangedArgs<Kernel.IKernelConnection | null, Kernel.IKernelConnection | null, 'kernel'>
  ): void {
    this._leave();
    this._watch(newValue);
  }

  private _watch(kernel: Kernel.IKernelConnection | null): void {
    if (kernel === null || kernel.isDisposed) {
      return;
    }
    const isUp = (): boolean => kernel.connectionStatus === 'connected' && KNOWN.includes(kernel.status);
    const sent = new SentCells(isUp());
    const isHere = (): boolean => !this._panel.isDisposed && !kernel.isDisposed && this._kernel === kernel;
    const ask = (): void => void this._askWhileInDoubt(kernel, sent, isHere);
    const pass = (_: unknown, { msg, direction }: Kernel.IAnyMessageArgs): void => {
      if (direction === 'send') {
        sent.send(msg.header, isUp());
      } else if (sent.hear(msg.header, String((msg.parent_header as { msg_id?: string }).msg_id))) {
        ask();
      }
    };
    const connect = (_: unknown, status: Kernel.ConnectionStatus): void => {
      if (status === 'connected') {
        sent.connect();
        ask();
      }
    };
    const look = (_: unknown, status: Kernel.Status): void => {
      if (RESTARTS.includes(status)) {
        sent.clear();
      }
    };
    if (kernel.connectionStatus === 'connected') {
      sent.connect();
    }
    this._kernel = kernel;
    kernel.anyMessage.connect(pass);
    kernel.connectionStatusChanged.connect(connect);
    kernel.statusChanged.connect(look);
    this._leave = () => {
      kernel.anyMessage.disconnect(pass);
      kernel.connectionStatusChanged.disconnect(connect);
      kernel.statusChanged.disconnect(look);
      this._kernel = null;
      this._leave = () => undefined;
    };
  }

  /** Asks again while the server cannot tell, at most `TRIES` times for each connection. */
  private async _askWhileInDoubt(
    kernel: Kernel.IKernelConnection,
    sent: SentCells,
    isHere: () => boolean
  ): Promise<void> {
    if (this._asking.has(kernel)) {
      return;
    }
    this._asking.add(kernel);
    let tries = 0;
    while (tries < TRIES && isHere() && kernel.connectionStatus === 'connected' && sent.doubtful.length > 0) {
      const asked = sent.doubtful.slice(0, MOST_ASKED);
      const lost = await this._ask(kernel, asked);
      if (lost === undefined) {
        break;
      }
      if (lost !== null && isHere()) {
        sent.settle(asked);
        lost.forEach(msgId => markLost(this._panel, kernel, msgId, this._trans));
        tries = 0;
      } else {
        await new Promise(resolve => setTimeout(resolve, Math.min(FIRST_WAIT_MS * 2 ** tries, LONGEST_WAIT_MS)));
        tries += 1;
      }
    }
    this._asking.delete(kernel);
  }

  /** Null: it cannot be told now. Undefined: nor later. */
  private async _ask(
    kernel: Kernel.IKernelConnection,
    msgIds: readonly string[]
  ): Promise<readonly string[] | null | undefined> {
    try {
      return await this._client.notReceived(kernel.id, kernel.clientId, msgIds);
    } catch (error) {
      const isFinal = !(error instanceof StatusError) || error.kind === 'not-installed' || error.kind === 'forbidden';
      return isFinal ? undefined : null;
    }
  }

  private readonly _asking = new Set<Kernel.IKernelConnection>();
  private _kernel: Kernel.IKernelConnection | null = null;
  private _leave: () => void = () => undefined;
}
