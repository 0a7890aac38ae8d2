// Finds a larger size for a kernel whose allocation failed, and its dry run. Pure but for two
// requests to the server.

import { IDryRun, IKernel, ISizes, IStatus, ISizeRequest } from '../tokens';

const GIB = 2 ** 30;

/** A size that is large enough, with the server's dry run. */
export interface ILarger {
  readonly request: ISizeRequest;
  readonly dryRun: IDryRun;
}

/** The used part of the client. */
export interface ISizeSource {
  sizes(): Promise<ISizes>;
  dryRun(request: ISizeRequest, kernelId?: string): Promise<IDryRun>;
}

/** Whether the kernel ended for lack of memory, as far as the server knows. */
export function endedForMemory(kernel: IKernel): boolean {
  const code = kernel.termination?.code;
  return code === 'memory_limit' || code === 'oom' || (code !== undefined && isShort(kernel));
}

/** Whether one of the kernel's allocations failed. */
export function isShort(kernel: IKernel): boolean {
  return (kernel.required_bytes ?? 0) > kernel.memory_limit_bytes;
}

/**
 * Return the smallest size that is large enough for this kernel; null if there is none or the need is unknown.
 * A running kernel stays on its devices, whose memory limits the size; a restarted one may get others.
 */
export async function findLarger(kernel: IKernel, status: IStatus, source: ISizeSource): Promise<ILarger | null> {
  const sizes = await source.sizes();
  const request = largerRequest(kernel, status, sizes);
  if (request === null) {
    return null;
  }
  const isOver = kernel.state === 'ended';
  return { request, dryRun: await source.dryRun(request, isOver ? undefined : kernel.id) };
}

export function largerRequest(kernel: IKernel, status: IStatus, sizes: ISizes): ISizeRequest | null {
  const needed = Math.max(kernel.required_bytes ?? 0, kernel.memory_limit_bytes + 1);
  const { priority } = kernel;
  if (kernel.requested_memory_bytes !== null) {
    const memory = Math.ceil(needed / GIB) * GIB;
    const most = mostBytes(kernel, status, sizes);
    return most !== null && memory > most ? null : { gpus: kernel.gpus, memory, priority };
  }
  const device = deviceBytes(kernel, status, sizes);
  if (device === null) {
    return null;
  }
  const most = kernel.state === 'ended' ? sizes.largest_gpus : Math.max(1, kernel.devices.length);
  const least = Math.max(Math.ceil(needed / device / sizes.step - 1e-6) * sizes.step, kernel.gpus + sizes.step);
  // Prefer a preset that is not much larger; else take the next step.
  const offered = sizes.sizes
    .filter(size => size.requested_memory_bytes === null && size.gpus >= least - 1e-6)
    .map(size => size.gpus)
    .filter(gpus => gpus <= Math.min(most, 2 * least));
  const gpus = Math.round((offered.length > 0 ? Math.min(...offered) : least) * 100) / 100;
  return gpus <= most ? { gpus, memory: null, priority } : null;
}

/** The memory of the smallest device that the kernel has, or could get. */
function deviceBytes(kernel: IKernel, status: IStatus, sizes: ISizes): number | null {
  const its = new Set(kernel.devices.map(device => device.uuid));
  const devices = status.devices.filter(device => !device.lost && (its.size === 0 || its.has(device.uuid)));
  const told = sizes.device_memory_bytes ?? 0;
  const least = Math.min(...devices.map(device => device.memory_bytes));
  return Number.isFinite(least) && least > 0 ? least : told > 0 ? told : null;
}

function mostBytes(kernel: IKernel, status: IStatus, sizes: ISizes): number | null {
  const device = deviceBytes(kernel, status, sizes);
  return device && device * Math.max(1, Math.ceil(kernel.gpus));
}
