// Kernels by their owners, with sums, for who sees those of others. Pure.

import { kernelTitle } from './kernel_facts';
import { IKernel } from '../tokens';

export interface IOwnerGroup {
  readonly owner: string;
  readonly isMine: boolean;
  readonly kernels: readonly IKernel[];
  readonly gpus: number;
  readonly usedBytes: number;
  readonly swappedBytes: number;
  /** Kernels that wait for room. */
  readonly waiting: number;
}

/** One's own first, then by name. */
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

/** The places at which kernels of the asker wait, for room to start or to grow; the first first. */
export function myPlaces(kernels: readonly IKernel[], me: string): number[] {
  return kernels
    .filter(kernel => kernel.owner === me)
    .flatMap(kernel => [kernel.queue_position, kernel.resize?.position ?? null])
    .filter((place): place is number => place !== null)
    .sort((a, b) => a - b);
}

/** The folders of notebooks that share their title with one of another folder, by their kernels' ids. */
export function foldersToTell(kernels: readonly IKernel[]): ReadonlyMap<string, string> {
  const labels = new Map<string, Set<string>>();
  for (const kernel of kernels) {
    const title = kernelTitle(kernel);
    labels.set(title, (labels.get(title) ?? new Set()).add(kernel.label));
  }
  const alike = kernels.filter(kernel => (labels.get(kernelTitle(kernel))?.size ?? 0) > 1);
  return new Map(alike.map(({ id, label }) => [id, label.split('/').slice(0, -1).join('/') || '/']));
}

/** The short ids of kernels of one owner that nothing else tells apart, as notebooks of one path on two servers, by their ids. */
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
