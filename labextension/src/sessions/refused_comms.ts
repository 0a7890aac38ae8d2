// When a page says that a kernel was not given what a widget sent: its cell has ended, and shows nothing of it. No DOM.

/** As much of a message on iopub as is looked at. */
export interface IHeard {
  readonly header: { readonly msg_type: string };
  readonly parent_header: object;
  readonly content: object;
}

/** Why: the kernel has too much to read, or nobody can know that it is not to have it a second time. */
export type Refusal = 'unread' | 'not-run';

/** By the names of the errors with which servers and relays refuse. */
const REFUSALS = new Map<unknown, Refusal>([
  ['KernelDoesNotRead', 'unread'],
  ['NotRun', 'not-run']
]);
/** Several pages of a kernel, and several senders in it, may be refused at once. */
const PAUSE_MS = 60000;

export class RefusedComms {
  /** Why something did not arrive, if that is to be told: not again soon after another like it of the kernel. */
  hear(kernelId: string, message: IHeard, now: number): Refusal | null {
    const { ename } = message.content as { ename?: unknown };
    const { msg_type: asked } = message.parent_header as { msg_type?: unknown };
    const refusal = message.header.msg_type === 'error' ? REFUSALS.get(ename) : undefined;
    const isOfComm = typeof asked === 'string' && asked.startsWith('comm_');
    const told = `${kernelId} ${refusal}`;
    if (!refusal || !isOfComm || now - (this._last.get(told) ?? -Infinity) < PAUSE_MS) {
      return null;
    }
    this._last.set(told, now);
    return refusal;
  }

  private readonly _last = new Map<string, number>();
}
