// Marks the cells of a notebook that were lost with its connection: the kernel never got them, and
// they are not run.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { AliquotClient } from '../../client/client';
import { IGpuKernels } from '../../gpu_kernels';
import { SentCells } from '../../sessions/lost_cells';
import { StatusError, TRANSLATION_DOMAIN } from '../../tokens';
import { markLost, markUnsent } from '../../widgets/notebook/lost_cell';
import { eachKernel } from './notebook_kernels';

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
  eachKernel(tracker, (panel, kernel) => new Watcher(panel, kernel, client, trans).watch());
};

/** Watches the connection of one notebook to one kernel. */
class Watcher {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _kernel: Kernel.IKernelConnection,
    private readonly _client: AliquotClient,
    private readonly _trans: TranslationBundle
  ) {}

  /** Begin, and return what ends it. */
  watch(): () => void {
    const kernel = this._kernel;
    const isUp = (): boolean => kernel.connectionStatus === 'connected' && KNOWN.includes(kernel.status);
    const sent = new SentCells(isUp());
    const ask = (): void => void this._askWhileInDoubt(sent);
    const pass = (_: unknown, { msg, direction }: Kernel.IAnyMessageArgs): void => {
      if (direction === 'send') {
        sent.send(msg.header, isUp());
        const { cellId } = msg.metadata as { cellId?: unknown };
        if (msg.header.msg_type === 'execute_request' && typeof cellId === 'string') {
          this._cells.set(msg.header.msg_id, cellId);
        }
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
    kernel.anyMessage.connect(pass);
    kernel.connectionStatusChanged.connect(connect);
    kernel.statusChanged.connect(look);
    return () => {
      this._isLeft = true;
      kernel.anyMessage.disconnect(pass);
      kernel.connectionStatusChanged.disconnect(connect);
      kernel.statusChanged.disconnect(look);
      this._giveUp(sent.waiting);
    };
  }

  /** Mark the cells that Lab has kept for a kernel that is gone, once Lab has dropped them. */
  private _giveUp(msgIds: readonly string[]): void {
    const cells = new Set(msgIds.map(msgId => this._cells.get(msgId)));
    if (cells.size > 0) {
      setTimeout(() => !this._panel.isDisposed && markUnsent(this._panel, cells, this._trans), 0);
    }
  }

  private get _isHere(): boolean {
    return !this._isLeft && !this._panel.isDisposed && !this._kernel.isDisposed;
  }

  /** Asks again while the server cannot tell, at most `TRIES` times for each connection. */
  private async _askWhileInDoubt(sent: SentCells): Promise<void> {
    if (this._isAsking) {
      return;
    }
    this._isAsking = true;
    let tries = 0;
    while (tries < TRIES && this._isHere && this._kernel.connectionStatus === 'connected' && sent.doubtful.length > 0) {
      const asked = sent.doubtful.slice(0, MOST_ASKED);
      const lost = await this._ask(asked);
      if (lost === undefined) {
        break;
      }
      if (lost !== null && this._isHere) {
        sent.settle(asked);
        lost.forEach(msgId => markLost(this._panel, this._kernel, msgId, this._trans));
        tries = 0;
      } else {
        await new Promise(resolve => setTimeout(resolve, Math.min(FIRST_WAIT_MS * 2 ** tries, LONGEST_WAIT_MS)));
        tries += 1;
      }
    }
    this._isAsking = false;
  }

  /** Null: it cannot be told now. Undefined: nor later. */
  private async _ask(msgIds: readonly string[]): Promise<readonly string[] | null | undefined> {
    try {
      return await this._client.notReceived(this._kernel.id, this._kernel.clientId, msgIds);
    } catch (error) {
      const isFinal = !(error instanceof StatusError) || error.kind === 'not-installed' || error.kind === 'forbidden';
      return isFinal ? undefined : null;
    }
  }

  /** The cells of the requests that passed, by message. */
  private readonly _cells = new Map<string, string>();
  private _isAsking = false;
  private _isLeft = false;
}
