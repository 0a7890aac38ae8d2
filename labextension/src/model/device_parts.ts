// How a device's memory divides: mine and others', each within guarantees, beyond them, and
// promised but not used. Pure.

import { IDevice, IKernel } from '../tokens';

/**
 * Bytes. All fields but the last two add up to the device's memory; those two are in host memory.
 */
export interface IDeviceParts {
  /** In use by the user's own kernels, contexts included: within their guarantees, and beyond. */
  readonly mine: number;
  readonly mineBurstable: number;
  /** Guaranteed to them, and not in use. */
  readonly mineHeld: number;
  /** In use by kernels of other users and by other processes. */
  readonly others: number;
  readonly othersBurstable: number;
  readonly othersHeld: number;
  readonly free: number;
  readonly mineSwapped: number;
  readonly othersSwapped: number;
}

/** The use of one device by the user's own kernels, from the reports of these kernels. */
export interface IMyPart {
  context: number;
  burstable: number;
  held: number;
}

const NOTHING: IMyPart = { context: 0, burstable: 0, held: 0 };

/** Keyed by the device's UUID. */
export function myParts(kernels: readonly IKernel[], me: string): Map<string, IMyPart> {
  const parts = new Map<string, IMyPart>();
  for (const kernel of kernels.filter(one => one.owner === me)) {
    for (const device of kernel.devices) {
      const before = parts.get(device.uuid) ?? NOTHING;
      const resident = device.used_bytes * residentPart(kernel);
      parts.set(device.uuid, {
        context: before.context + device.context_bytes,
        burstable: before.burstable + Math.max(0, resident - device.guaranteed_memory_bytes),
        held: before.held + Math.max(0, device.guaranteed_memory_bytes - resident)
      });
    }
  }
  return parts;
}

export function deviceParts(device: IDevice, my: IMyPart = NOTHING): IDeviceParts {
  const total = Math.max(device.memory_bytes, 0);
  const used = within(device.used_bytes, total);
  const mineSwapped = device.mine_swapped_bytes ?? 0;
  const mineUsed = within(device.mine_bytes - mineSwapped + my.context, used);
  const othersUsed = used - mineUsed;
  const mineBurstable = within(my.burstable, mineUsed);
  const othersBurstable = within((device.burstable_bytes ?? 0) - my.burstable, othersUsed);
  const othersReserved = Math.max(0, device.reserved_bytes - (device.mine_reserved_bytes ?? 0));
  // Guarantees may exceed the device's memory (overcommit); the bar shows what exists.
  const mineHeld = within(my.held, total - used);
  const othersHeld = within(othersReserved - (othersUsed - othersBurstable), total - used - mineHeld);
  return {
    mine: mineUsed - mineBurstable,
    mineBurstable,
    mineHeld,
    others: othersUsed - othersBurstable,
    othersBurstable,
    othersHeld,
    free: total - used - mineHeld - othersHeld,
    mineSwapped,
    othersSwapped: Math.max(0, (device.swapped_bytes ?? 0) - mineSwapped)
  };
}

/**
 * How a kernel's memory divides within its limit: on the device within its guarantee, beyond it, in
 * host memory. Memory over a limit that was lowered is not burstable: it is told as over the limit.
 */
export function kernelParts(kernel: IKernel): { resident: number; burstable: number; swapped: number } {
  const swapped = within(kernel.residency?.swapped_bytes ?? 0, kernel.used_bytes);
  const resident = kernel.used_bytes - swapped;
  const burstable = Math.max(0, Math.min(resident, kernel.memory_limit_bytes) - kernel.guaranteed_memory_bytes);
  return { resident: resident - burstable, burstable, swapped };
}

function residentPart(kernel: IKernel): number {
  const swapped = within(kernel.residency?.swapped_bytes ?? 0, kernel.used_bytes);
  return kernel.used_bytes > 0 ? 1 - swapped / kernel.used_bytes : 1;
}

function within(value: number, most: number): number {
  return Math.min(Math.max(value, 0), Math.max(most, 0));
}
