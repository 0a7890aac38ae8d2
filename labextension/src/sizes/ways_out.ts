// Remedies of a wait: a smaller size that starts now, and the user's own idle kernels that hold
// capacity. Pure but for the dry runs, by which the server decides what starts.

import { obstacle } from '../model/action_rules';
import { isSharedWithMe } from '../model/kernel_access';
import { ISizeDraft, sizeOf, requestOf } from './resize_request';
import { baseOf, candidates, noGpu, partBytes } from './sizes';
import { IDevice, IDryRun, IKernel, ISizes, IStatus, ISizeRequest } from '../tokens';

const GIB = 2 ** 30;
/** Tolerance for rounding errors in sums of shares. */
const EPSILON = 1e-6;

/** A size that would start now in the place of a waiting kernel. */
export interface ISmaller {
  readonly asked: ISizeDraft;
  /** The size's part of the kernelspec's name: `gpu-0.25`. */
  readonly suffix: string;
}

/** One of the user's own kernels that would free capacity, and the way to free it. */
export interface IHelper {
  readonly kernel: IKernel;
  readonly way: 'swapOut' | 'shutDown';
}

/** Whether this kernel waits to start and the user may act on it. */
export function isQueuedOfMine(kernel: IKernel): boolean {
  return kernel.state === 'queued' && !isSharedWithMe(kernel);
}

/** The kernelspec that runs the same kernel without a GPU. */
export function plainName(name: string, sizes: ISizes): string {
  const base = baseOf(name, sizes);
  return noGpu(sizes).kind === 'plain' ? base : `${base}.gpu-none`;
}

/**
 * Return the next smaller size that would start now, or null. `ask` answers for a kernel that
 * replaces this one.
 */
export async function smallerNow(
  kernel: IKernel,
  sizes: ISizes,
  ask: (request: ISizeRequest) => Promise<IDryRun>
): Promise<ISmaller | null> {
  const has = sizeOf(kernel);
  for (const asked of candidates(has, sizes)) {
    if (isSmaller(asked, has, sizes) && mayFit(asked, kernel)) {
      const { outcome, suffix } = await ask(requestOf(asked));
      if (outcome === 'starts') {
        return { asked, suffix };
      }
    }
  }
  return null;
}

/**
 * Return the user's own idle kernels whose room helps a kernel that waits: first those of which one is enough, and of
 * these the ones that have been idle longest.
 *
 * Shutting a kernel down frees what is reserved for it, which a queued kernel needs. Swapping one out frees memory
 * alone, which a kernel needs whose own memory is to come back.
 */
export function helpers(kernel: IKernel, status: IStatus): IHelper[] {
  if (isSharedWithMe(kernel)) {
    return [];
  }
  const idle = status.kernels.filter(one => isIdleOfMine(one, status) && one.id !== kernel.id);
  return kernel.state === 'queued' ? ofQueue(kernel, idle, status) : ofMemory(kernel, idle, status);
}

function isIdleOfMine(kernel: IKernel, status: IStatus): boolean {
  const isIdle = kernel.idle_since !== null && kernel.execution_state !== 'busy';
  const isMine = kernel.owner === status.user.name && !isSharedWithMe(kernel);
  return isIdle && isMine && kernel.devices.length > 0 && obstacle('shutDown', kernel, status) === null;
}

function ofMemory(kernel: IKernel, idle: readonly IKernel[], status: IStatus): IHelper[] {
  if (!kernel.residency?.queued) {
    return [];
  }
  const its = new Set(kernel.devices.map(device => device.uuid));
  return idle
    .filter(one => one.devices.some(device => its.has(device.uuid) && device.used_bytes > 0))
    .map(one => ({ one, why: obstacle('swapOut', one, status) }))
    .filter(({ why }) => why === null || why === 'never-swapped')
    .map(({ one, why }) => ({ kernel: one, way: why === null ? 'swapOut' : 'shutDown' }));
}

function ofQueue(kernel: IKernel, idle: readonly IKernel[], status: IStatus): IHelper[] {
  const code = kernel.wait_reason?.code;
  if (code === 'host_memory') {
    return idle.map(one => ({ kernel: one, way: 'shutDown' })); // copies of all of them count
  }
  if (code !== 'gpu' && code !== 'gpu_memory') {
    return []; // it does not wait for capacity
  }
  const needs = needOf(kernel);
  const near = status.devices.filter(device => !device.lost && fits(device, idle, needs, kernel, status));
  if (near.length < needs.devices) {
    return [];
  }
  const onNear = idle.filter(one => one.devices.some(({ uuid }) => near.some(device => device.uuid === uuid)));
  const alone = (one: IKernel): number =>
    near.filter(device => fits(device, [one], needs, kernel, status)).length >= needs.devices ? 0 : 1;
  const since = (one: IKernel): number => Date.parse(one.idle_since ?? '');
  onNear.sort((a, b) => alone(a) - alone(b) || since(a) - since(b));
  return onNear.map(one => ({ kernel: one, way: 'shutDown' }));
}

interface INeed {
  /** The number of devices of the size. */
  readonly devices: number;
  /** The share of each device. */
  readonly gpus: number;
  readonly bytes: number;
}

function needOf(kernel: IKernel): INeed {
  const { gpus, memory_bytes: bytes } = kernel.wait_reason!.requested;
  const devices = Math.max(1, Math.ceil(gpus - EPSILON));
  return { devices, gpus: Math.min(gpus, 1), bytes: (bytes ?? 0) / devices };
}

/** Whether this device has capacity for a part of the waiting kernel without these kernels. */
function fits(device: IDevice, leaving: readonly IKernel[], need: INeed, kernel: IKernel, status: IStatus): boolean {
  const given = leaving.flatMap(one => one.devices).filter(part => part.uuid === device.uuid);
  const gpus = given.reduce((sum, part) => sum + part.gpus, freeGpus(device, kernel, status));
  const bytes = given.reduce((sum, part) => sum + part.guaranteed_memory_bytes, freeBytes(device, kernel, status));
  return gpus + EPSILON >= need.gpus && bytes >= need.bytes;
}

/**
 * The free share: the gateway reports it of the device with the most; of others it follows from
 * reservations.
 */
function freeGpus(device: IDevice, kernel: IKernel, status: IStatus): number {
  const { free } = kernel.wait_reason!;
  return free.device === device.index ? (free.gpus ?? 0) : ratio(device, status) - device.reserved_gpus;
}

function freeBytes(device: IDevice, kernel: IKernel, status: IStatus): number {
  const { free } = kernel.wait_reason!;
  const left = ratio(device, status) * device.memory_bytes - device.reserved_bytes;
  return free.device === device.index ? (free.memory_bytes ?? 0) : left;
}

/** How often a device may be reserved; an older server tells it of the node alone. */
function ratio(device: IDevice, status: IStatus): number {
  return device.overcommit ?? status.node.overcommit;
}

function isSmaller(asked: ISizeDraft, has: ISizeDraft, sizes: ISizes): boolean {
  if (asked.gpus < has.gpus - EPSILON) {
    return true;
  }
  const part = partBytes(asked.gpus, sizes);
  return asked.memoryGib === null && has.memoryGib !== null && part !== null && part < has.memoryGib * GIB;
}

/** Whether the free share may suffice, so that a dry run is worth a request. */
function mayFit(asked: ISizeDraft, kernel: IKernel): boolean {
  const reason = kernel.wait_reason;
  const isOfOne = reason?.code === 'gpu' && reason.free.device !== null && reason.free.gpus !== null;
  return !isOfOne || asked.gpus <= reason.free.gpus! + EPSILON;
}
