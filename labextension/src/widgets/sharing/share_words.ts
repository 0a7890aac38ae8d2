// Texts of sharing: principals, their access, and what a share allows.

import { TranslationBundle } from '@jupyterlab/translation';

import { accessTo, inOrder } from '../../model/kernel_access';
import { IKernel, IShare } from '../../tokens';

/** `bob`, `team vision` */
export function shareName({ kind, name }: IShare, trans: TranslationBundle): string {
  return kind === 'team' ? trans.__('team %1', name) : name;
}

export function accessName(access: IShare['access'], trans: TranslationBundle): string {
  return access === 'read' ? trans.__('read') : trans.__('write');
}

/** The users and teams with whom the user's kernel is shared; null if there are none. */
export function sharedText(kernel: IKernel, trans: TranslationBundle): string | null {
  const shares = kernel.shares ?? [];
  return shares.length > 0 ? sharedWith(shares, trans) : null;
}

/** What the user may do with a shared kernel, and what not; null for the user's own. */
export function sharedHint(kernel: IKernel, trans: TranslationBundle): string | null {
  switch (accessTo(kernel)) {
    case 'read':
      return trans.__(
        '%1 shares it with you read-only: you see its figures and what its cells show. No cell can be run in it.',
        kernel.owner
      );
    case 'write':
      return trans.__(
        '%1 shares it with you: you can run cells, interrupt and restart it. Its size, and its end, are up to %1.',
        kernel.owner
      );
    case 'own':
      return null;
  }
}

const NAMED = 2;

function sharedWith(shares: readonly IShare[], trans: TranslationBundle): string {
  const names = inOrder(shares).map(share => shareName(share, trans));
  const named = names.slice(0, NAMED).join(', ');
  const others = names.length - NAMED;
  return others > 0 ? trans.__('shared with %1 and %2 more', named, String(others)) : trans.__('shared with %1', named);
}
