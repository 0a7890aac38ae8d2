// Finds the kernels that others shared with this user, or stopped sharing, since the last status.
// No DOM.

import { accessTo, isSharedWithMe } from './kernel_access';
import { IKernel, IStatus } from '../tokens';

export type ShareNews =
  | { readonly kind: 'shared'; readonly key: string; readonly kernel: IKernel }
  /** The last report of a kernel that is not shared any more, or has ended. */
  | { readonly kind: 'unshared'; readonly key: string; readonly kernel: IKernel };

/**
 * Compares each status with the one before. The caller drops news whose key it has shown already.
 */
export class ShareReader {
  /**
   * Return the changes since the last status. `isAgain`: the share ended and began again, so the
   * caller shows it anew.
   */
  read(status: IStatus): { readonly news: ShareNews; readonly isAgain: boolean }[] {
    const shared = new Map(status.kernels.filter(isLiveShare).map(kernel => [kernel.id, kernel]));
    const known = new Set(status.kernels.map(kernel => kernel.id));
    const found: { news: ShareNews; isAgain: boolean }[] = [];
    for (const kernel of shared.values()) {
      const before = this._last?.get(kernel.id);
      const isAgain = this._last !== null && (before === undefined || accessTo(before) !== accessTo(kernel));
      found.push({ news: { kind: 'shared', key: `shared ${kernel.id} ${accessTo(kernel)}`, kernel }, isAgain });
    }
    for (const kernel of this._last?.values() ?? []) {
      if (!known.has(kernel.id)) {
        found.push({ news: { kind: 'unshared', key: `unshared ${kernel.id}`, kernel }, isAgain: true });
      }
    }
    this._last = shared;
    return found;
  }

  private _last: ReadonlyMap<string, IKernel> | null = null;
}

function isLiveShare(kernel: IKernel): boolean {
  return isSharedWithMe(kernel) && kernel.state !== 'ended';
}
