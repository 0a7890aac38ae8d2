// Which of a page's cells may have been lost with its connection to a kernel. Pure: it is told what
// passes.

/**
 * The connection by which a cell left the page: 1 is the first; EARLIER: one before the present;
 * null: it may not have left yet.
 */
type Connection = number | null;

const EARLIER = 0;

/** The header of a message, as far as it matters here. */
interface Header {
  readonly msg_id: string;
  readonly msg_type: string;
}

/** A message that the page handed to Lab. */
interface Sent {
  readonly connection: Connection;
  readonly isCell: boolean;
}

/**
 * The cells of one page that its kernel has not answered yet, in the order of their requests.
 *
 * Lab's connection queues the messages that it cannot send, of any kind, and sends them later in
 * their order, without telling. A cell counts as sent once a later message is answered, or if the
 * connection was up and its queue empty when the page handed it over. `kernel_info_request` is no
 * such message: Lab sends it past the queue while a kernel starts, and flushes the queue only after
 * its answer.
 */
export class SentCells {
  /**
   * `isAnswered`: the kernel has answered a `kernel_info_request` already, so that nothing waits
   * that the page handed over before.
   */
  constructor(isAnswered = false) {
    this._isAnswered = isAnswered;
  }

  /**
   * Note a message for the kernel. `isUp`: the connection is open, and the kernel's state is known.
   */
  send({ msg_id, msg_type }: Header, isUp: boolean): void {
    if (msg_type === 'kernel_info_request') {
      return;
    }
    const isQueued = [...this._sent.values()].some(({ connection }) => connection === null);
    const hasLeft = isUp && this._isAnswered && !isQueued;
    const isCell = msg_type === 'execute_request';
    if (isCell || !hasLeft) {
      this._sent.set(msg_id, { connection: hasLeft ? this._connection : null, isCell });
    }
  }

  /**
   * Note a message of the kernel. The first answer to a message shows that it arrived, and that
   * those before it have left the page. Return whether it was such an answer.
   */
  hear({ msg_type }: Header, parentId: string): boolean {
    // Lab sends now what it has queued.
    this._isAnswered = this._isAnswered || msg_type === 'kernel_info_reply';
    if (!this._sent.has(parentId)) {
      return false;
    }
    for (const [msgId, { connection, isCell }] of [...this._sent]) {
      if (msgId === parentId || !isCell) {
        this._sent.delete(msgId);
      } else {
        this._sent.set(msgId, { connection: connection ?? EARLIER, isCell });
      }
      if (msgId === parentId) {
        break;
      }
    }
    return true;
  }

  /** The connection is open again, or for the first time. */
  connect(): void {
    this._connection += 1;
  }

  /** Cells that went over an earlier connection, and may be lost: the gateway knows. */
  get doubtful(): readonly string[] {
    return [...this._sent]
      .filter(([, { connection }]) => connection !== null && connection < this._connection)
      .map(([msgId]) => msgId);
  }

  /** Cells that may not have left the page: with the connection's end they are not run. */
  get waiting(): readonly string[] {
    return [...this._sent].filter(([, { connection, isCell }]) => isCell && connection === null).map(([msgId]) => msgId);
  }

  /** The gateway told of these. */
  settle(msgIds: readonly string[]): void {
    msgIds.forEach(msgId => this._sent.delete(msgId));
  }

  /** The kernel is another process now, and Lab has given up what it was asked. */
  clear(): void {
    this._sent.clear();
    this._isAnswered = false;
  }

  /** Messages that may wait in Lab's queue, and cells without an answer. */
  private readonly _sent = new Map<string, Sent>();
  private _isAnswered: boolean;
  private _connection = 0;
}
