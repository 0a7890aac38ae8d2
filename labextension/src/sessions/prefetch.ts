// Decides when to ask the node to prefetch a kernel that its user turns to: if it may save a wait,
// and not too often.

import { isSharedWithMe, suffices } from '../model/kernel_access';
import { IKernel } from '../tokens';

/** One object for all notebooks of a page. Times are milliseconds of a monotonic clock. */
export class PrefetchRule {
  /** Whether to send a request now; true counts it as sent. */
  mayPrefetch(kernel: IKernel | null, user: string, nowMs: number): boolean {
    const mayUse = kernel !== null && (kernel.owner === user || (isSharedWithMe(kernel) && suffices(kernel, 'write')));
    if (kernel === null || !mayUse || !['swapped_out', 'checkpointed'].includes(kernel.state)) {
      return false;
    }
    const last = this._last.get(kernel.id);
    if (last !== undefined && nowMs - last < PrefetchRule.BETWEEN_MS) {
      return false;
    }
    this._forget(nowMs);
    this._last.set(kernel.id, nowMs);
    return true;
  }

  /** The most kernels to remember, for kernels come and go while a page stays. */
  private _forget(nowMs: number): void {
    for (const [kernelId, last] of [...this._last]) {
      if (nowMs - last >= PrefetchRule.BETWEEN_MS) {
        this._last.delete(kernelId);
      }
    }
  }

  private readonly _last = new Map<string, number>();
}

export namespace PrefetchRule {
  /** The gateway accepts one request a second. */
  export const BETWEEN_MS = 1000;
}
