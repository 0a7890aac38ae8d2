// Which of a page's cells may have been lost with its connection to a kernel. Pure: it is told what
// passes.

/** A request in the order of sending. */
interface ISent {
  readonly isCell: boolean;
  /**
   * The connection that it went over, the first is 1; EARLIER: one before the present; null: it may
   * not have left yet.
   */
  connection: number | null;
}

const EARLIER = 0;

/**
 * The requests of one kernel's page of which the kernel has shown nothing yet.
 *
 * Lab's connection keeps what it cannot send, and sends it later in its order, without telling. So a request counts as
 * sent once a later one of the page is answered, or where the connection was up and kept nothing when it was handed over.
 */
export class SentCells {
  /**
   * The page hands a request to its connection. `isUp`: the connection is open, and the kernel's
   * state is known.
   */
  send(msgId: string, isCell: boolean, isUp: boolean): void {
    const isKept = [...this._sent.values()].some(({ connection }) => connection === null);
    this._sent.set(msgId, { isCell, connection: isUp && !isKept ? this._connection : null });
  }

  /**
   * The kernel says something of a request: it arrived, and those before it have left the page.
   * False: of another's.
   */
  hear(parentId: string): boolean {
    if (!this._sent.has(parentId)) {
      return false;
    }
    for (const [msgId, sent] of [...this._sent]) {
      if (msgId === parentId) {
        break;
      }
      if (!sent.isCell) {
        this._sent.delete(msgId);
      }
      sent.connection ??= EARLIER;
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
      .filter(([, { isCell, connection }]) => isCell && connection !== null && connection < this._connection)
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

  private readonly _sent = new Map<string, ISent>();
  private _connection = 0;
}
