// Tells whether a notebook's kernel is connected, starting or absent, and waits for it. No DOM.

import { ISessionContext } from '@jupyterlab/apputils';

/** `here`: messages arrive. `coming`: messages would be lost. `none`: no kernel was requested. */
export type Attachment = 'here' | 'coming' | 'none';

/** The part of a session context that `attachment` reads. */
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
    return 'coming'; // a restart drops messages sent before it
  }
  if (kernel) {
    // The connection queues messages until it is up, unless the session context has chosen another
    // kernel.
    const isLeaving = kernel.connectionStatus === 'connected' && kernel.status !== 'starting';
    return isLeaving && context.kernelDisplayStatus === 'starting' ? 'coming' : 'here';
  }
  return ['initializing', 'starting'].includes(context.kernelDisplayStatus) ? 'coming' : 'none';
}

/**
 * Resolves with true once the kernel is here, with false if none will come. Waiters resume in their
 * order.
 */
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
