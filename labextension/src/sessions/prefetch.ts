// When somebody's turning to a notebook is told to its kernel's node: only where it may spare a wait, and not too often.

import { isSharedWithMe, suffices } from '../model/kernel_access';
import { IKernel } from '../tokens';

/** One for all notebooks of a page. Times are in milliseconds of a clock that never goes back. */
export class PrefetchRule {
  /** Whether to prefetch now; a yes counts as sent. */
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

  /** Kernels come and go while a page stays. */
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
  /** The gateway passes on one in a second. */
  export const BETWEEN_MS = 1000;
}
