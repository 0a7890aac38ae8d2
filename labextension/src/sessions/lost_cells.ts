// Which of a page's cells may have been lost with its connection to a kernel. Pure: it is told what
// passes.

/**
 * The connection by which a cell left the page: 1 is the first; EARLIER: one before the present;
 * null: it may not have left yet.
 */
type Connection = number | null;

const EARLIER = 0;

/**
 * The cells of one page that its kernel has not answered yet, in the order of their requests.
 *
 * Lab's connection queues the requests that it cannot send, and sends them later in their order,
 * without telling. A cell counts as sent once a later one is answered, or if the connection was up
 * and its queue empty when the page handed it over. Other requests show nothing: Lab sends
 * `kernel_info_request` past the queue, and flushes the queue only after its answer.
 */
export class SentCells {
  /**
   * Note the request of a cell. `isUp`: the connection is open, and the kernel's state is known.
   */
  send(msgId: string, isUp: boolean): void {
    const isQueued = [...this._sent.values()].includes(null);
    this._sent.set(msgId, isUp && !isQueued ? this._connection : null);
  }

  /**
   * Note the kernel's first answer to a cell: it arrived, and the cells before it have left the
   * page. Return false if the parent is none of these cells.
   */
  hear(parentId: string): boolean {
    if (!this._sent.has(parentId)) {
      return false;
    }
    for (const [msgId, connection] of [...this._sent]) {
      if (msgId === parentId) {
        break;
      }
      this._sent.set(msgId, connection ?? EARLIER);
    }
    this._sent.delete(parentId);
    return true;
  }

  /** The connection is open again, or for the first time. */
  connect(): void {
    this._connection += 1;
  }

  /** Cells that went over an earlier connection, and may be lost: the gateway knows. */
  get doubtful(): readonly string[] {
    return [...this._sent]
      .filter(([, connection]) => connection !== null && connection < this._connection)
      .map(([msgId]) => msgId);
  }

  /** The gateway told of these. */
  settle(msgIds: readonly string[]): void {
    msgIds.forEach(msgId => this._sent.delete(msgId));
  }

  /** The kernel is another process now, and Lab has given up what it was asked. */
  clear(): void {
    this._sent.clear();
  }

  private readonly _sent = new Map<string, Connection>();
  private _connection = 0;
}
