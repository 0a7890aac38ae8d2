// Which kernels others have given to this user, or taken back, since it was last told. No DOM.

import { accessTo, isSharedWithMe } from './kernel_access';
import { IKernel, IStatus } from '../tokens';

export type ShareNews =
  | { readonly kind: 'shared'; readonly key: string; readonly kernel: IKernel }
  /** As it was last seen: it was taken back, or it is no more. */
  | { readonly kind: 'unshared'; readonly key: string; readonly kernel: IKernel };

/** Tells of what was shared while the page was away only if its key was not told before: that is for its caller. */
export class ShareReader {
  /** News of this status against the one before. `isAgain`: it was taken back and given again, whatever was told. */
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
