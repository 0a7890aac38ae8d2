// The access of a user to kernels of others, and the shares of their own. Pure; the server enforces
// it.

import { IKernel, IShare, IStatus } from '../tokens';

/** Read: see outputs. Write: also run cells. Own: everything, for the owner and administrators. */
export type Access = 'read' | 'write' | 'own';

const LEVELS: readonly Access[] = ['read', 'write', 'own'];

/**
 * Return the user's access to a kernel; a server without sharing lists only kernels that the user
 * owns.
 */
export function accessTo(kernel: IKernel): Access {
  return kernel.access ?? 'own';
}

export function suffices(kernel: IKernel, needed: Access): boolean {
  return LEVELS.indexOf(accessTo(kernel)) >= LEVELS.indexOf(needed);
}

/** Whether another user shares this kernel with this user. */
export function isSharedWithMe(kernel: IKernel): boolean {
  return accessTo(kernel) !== 'own';
}

/**
 * Split kernels into owned (or administered) ones and those shared with the user, sorted by owner
 * and name.
 */
export function divideShared(kernels: readonly IKernel[]): { listed: IKernel[]; shared: IKernel[] } {
  const shared = kernels.filter(isSharedWithMe);
  shared.sort((a, b) => a.owner.localeCompare(b.owner) || a.label.localeCompare(b.label) || a.id.localeCompare(b.id));
  return { listed: kernels.filter(kernel => !isSharedWithMe(kernel)), shared };
}

/** Whether to show owners: true if the list has a kernel of another user, as for administrators. */
export function showsOwners(status: IStatus): boolean {
  return status.kernels.some(kernel => kernel.owner !== status.user.name && !isSharedWithMe(kernel));
}

/** Shares in order: users first, then teams, each by name. */
export function inOrder(shares: readonly IShare[]): IShare[] {
  return [...shares].sort((a, b) => b.kind.localeCompare(a.kind) || a.name.localeCompare(b.name));
}

/** The request that the form describes; null while it is incomplete. */
export function shareOf(draft: IShare): IShare | null {
  const name = draft.name.trim();
  return name === '' ? null : { ...draft, name };
}
