// Decides when to notify the user that the kernel did not get a widget's message. No DOM.

/** The used part of an iopub message. */
export interface IHeard {
  readonly header: { readonly msg_type: string };
  readonly parent_header: object;
  readonly content: object;
}

/** The error with which relays refuse what a kernel does not read. */
const REFUSAL = 'KernelNotResponding';
/** Limits notifications: several pages and several widgets may be refused at once. */
const PAUSE_MS = 60000;

export class RefusedComms {
  /**
   * Whether it is to be said that something did not arrive: not again soon after another like it of
   * the kernel.
   */
  hear(kernelId: string, message: IHeard, now: number): boolean {
    const { ename } = message.content as { ename?: unknown };
    const { msg_type: asked } = message.parent_header as { msg_type?: unknown };
    const isRefusal = message.header.msg_type === 'error' && ename === REFUSAL;
    const isOfComm = typeof asked === 'string' && asked.startsWith('comm_');
    if (!isRefusal || !isOfComm || now - (this._last.get(kernelId) ?? -Infinity) < PAUSE_MS) {
      return false;
    }
    this._last.set(kernelId, now);
    return true;
  }

  private readonly _last = new Map<string, number>();
}
