// Whether a notebook's kernel is there, is coming, or will not come; and waiting for it. No DOM.

import { ISessionContext } from '@jupyterlab/apputils';

/** `here`: what is sent arrives. `coming`: it would be lost. `none`: nobody has begun to bring one. */
export type Attachment = 'here' | 'coming' | 'none';

/** What `attachment` asks of a session context. */
export interface IAttaching {
  readonly isTerminating: boolean;
  readonly isRestarting: boolean;
  readonly kernelDisplayStatus: string;
  readonly session: { readonly kernel: { readonly status: string; readonly connectionStatus: string } | null } | null;
}

export function attachment(context: IAttaching): Attachment {
  const kernel = context.session?.kernel;
  if (context.isTerminating) {
    return 'none';
  }
  if (context.isRestarting) {
    return 'coming'; // a restart forgets what was sent before it
  }
  if (kernel) {
    // Its connection keeps what is sent before it is up. Another one takes its place where the two do not agree.
    const isLeaving = kernel.connectionStatus === 'connected' && kernel.status !== 'starting';
    return isLeaving && context.kernelDisplayStatus === 'starting' ? 'coming' : 'here';
  }
  return ['initializing', 'starting'].includes(context.kernelDisplayStatus) ? 'coming' : 'none';
}

/** Resolves with true once the kernel is here, with false once none will come. Those who wait go on in their order. */
export function attached(context: ISessionContext): Promise<boolean> {
  return new Promise(resolve => {
    const signals = [context.kernelChanged, context.sessionChanged, context.statusChanged];
    const stop = (isHere: boolean): void => {
      signals.forEach(signal => signal.disconnect(look));
      context.disposed.disconnect(giveUp);
      resolve(isHere);
    };
    const giveUp = (): void => stop(false);
    const look = (): void => {
      const now = attachment(context);
      if (now !== 'coming') {
        stop(now === 'here');
      }
    };
    signals.forEach(signal => signal.connect(look));
    context.disposed.connect(giveUp);
    look();
  });
}
