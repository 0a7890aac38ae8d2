// Groups kernels by owner, with sums, for users who see kernels of others. Pure.

import { kernelTitle } from './kernel_facts';
import { IKernel } from '../tokens';

export interface IOwnerGroup {
  readonly owner: string;
  readonly isMine: boolean;
  readonly kernels: readonly IKernel[];
  readonly gpus: number;
  readonly usedBytes: number;
  readonly swappedBytes: number;
  /** The kernels that wait for capacity. */
  readonly waiting: number;
}

/** Groups in order: the user's own first, then by owner's name. */
export function byOwner(kernels: readonly IKernel[], me: string): IOwnerGroup[] {
  const owners = new Map<string, IKernel[]>();
  for (const kernel of kernels) {
    const theirs = owners.get(kernel.owner) ?? [];
    owners.set(kernel.owner, theirs);
    theirs.push(kernel);
  }
  return [...owners]
    .map(([owner, theirs]) => groupOf(owner, owner === me, theirs))
    .sort((a, b) => Number(b.isMine) - Number(a.isMine) || a.owner.localeCompare(b.owner));
}

/**
 * The queue positions of the user's own kernels, for a start or a larger size, in ascending order.
 */
export function myPlaces(kernels: readonly IKernel[], me: string): number[] {
  return kernels
    .filter(kernel => kernel.owner === me)
    .flatMap(kernel => [kernel.queue_position, kernel.resize?.position ?? null])
    .filter((place): place is number => place !== null)
    .sort((a, b) => a - b);
}

/** Folders to show, by kernel id, for notebooks whose file name also occurs in another folder. */
export function foldersToTell(kernels: readonly IKernel[]): ReadonlyMap<string, string> {
  const labels = new Map<string, Set<string>>();
  for (const kernel of kernels) {
    const title = kernelTitle(kernel);
    labels.set(title, (labels.get(title) ?? new Set()).add(kernel.label));
  }
  const alike = kernels.filter(kernel => (labels.get(kernelTitle(kernel))?.size ?? 0) > 1);
  return new Map(alike.map(({ id, label }) => [id, label.split('/').slice(0, -1).join('/') || '/']));
}

/**
 * Short ids to show, by kernel id, for kernels of one owner with equal labels, such as one path on
 * two servers.
 */
export function idsToTell(kernels: readonly IKernel[]): ReadonlyMap<string, string> {
  const shown = (kernel: IKernel): string => JSON.stringify([kernel.owner, kernelTitle(kernel), kernel.label]);
  const counts = new Map<string, number>();
  kernels.forEach(kernel => counts.set(shown(kernel), (counts.get(shown(kernel)) ?? 0) + 1));
  const alike = kernels.filter(kernel => counts.get(shown(kernel))! > 1);
  return new Map(alike.map(({ id }) => [id, id.slice(0, 8)]));
}

function groupOf(owner: string, isMine: boolean, kernels: readonly IKernel[]): IOwnerGroup {
  const sum = (figure: (kernel: IKernel) => number): number => kernels.reduce((all, one) => all + figure(one), 0);
  return {
    owner,
    isMine,
    kernels,
    gpus: sum(kernel => (kernel.state === 'queued' ? 0 : kernel.gpus)),
    usedBytes: sum(kernel => kernel.used_bytes),
    swappedBytes: sum(kernel => kernel.residency?.swapped_bytes ?? 0),
    waiting: kernels.filter(kernel => kernel.state === 'queued').length
  };
}
