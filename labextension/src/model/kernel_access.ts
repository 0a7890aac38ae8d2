// What a user may do with a kernel that is somebody else's, and with whom one's own is shared. Pure: the server decides.

import { IKernel, IShare, IStatus } from '../tokens';

/** Read: see what it shows. Write: run cells in it, too. Own: everything; its owner, and administrators. */
export type Access = 'read' | 'write' | 'own';

const LEVELS: readonly Access[] = ['read', 'write', 'own'];

/** What the asker has of a kernel that they see; a server that shares no kernels shows only those that are theirs. */
export function accessTo(kernel: IKernel): Access {
  return kernel.access ?? 'own';
}

export function suffices(kernel: IKernel, needed: Access): boolean {
  return LEVELS.indexOf(accessTo(kernel)) >= LEVELS.indexOf(needed);
}

/** Whether its owner has given it to the asker, who is another. */
export function isSharedWithMe(kernel: IKernel): boolean {
  return accessTo(kernel) !== 'own';
}

/** Those that are listed by their owners, and those that were shared with the asker, by owner and name. */
export function divideShared(kernels: readonly IKernel[]): { listed: IKernel[]; shared: IKernel[] } {
  const shared = kernels.filter(isSharedWithMe);
  shared.sort((a, b) => a.owner.localeCompare(b.owner) || a.label.localeCompare(b.label) || a.id.localeCompare(b.id));
  return { listed: kernels.filter(kernel => !isSharedWithMe(kernel)), shared };
}

/** Whether kernels show their owner: as soon as one is listed that is not the user's own, as administrators may see. */
export function showsOwners(status: IStatus): boolean {
  return status.kernels.some(kernel => kernel.owner !== status.user.name && !isSharedWithMe(kernel));
}

/** Users first, then teams, each by name. */
export function inOrder(shares: readonly IShare[]): IShare[] {
  return [...shares].sort((a, b) => b.kind.localeCompare(a.kind) || a.name.localeCompare(b.name));
}

/** What is asked for in the form; null where it is no request yet. */
export function shareOf(draft: IShare): IShare | null {
  const name = draft.name.trim();
  return name === '' ? null : { ...draft, name };
}
