// What a kernel has of its devices' time, as figures: shares in per cent, stretch. Pure; the
// widgets have the words.

import { ICompute, IKernel, IKernelDevice } from '../tokens';

/** A kernel's device of whose time there is something to tell. */
export type Timed = IKernelDevice & { readonly compute: ICompute };

/**
 * The kernel's own GPU time in seconds, as history and accounting count it; the driver's count, with
 * neighbors' slices, where the agent tells no other.
 */
export function gpuSeconds(kernel: IKernel): number {
  return kernel.devices.reduce((sum, { compute, busy_seconds: busy }) => sum + (compute?.own_seconds ?? busy), 0);
}

/** Those of a kernel's devices that it has used, or wants to use. */
export function timedDevices(kernel: IKernel): Timed[] {
  // A gateway of before does not even have the field.
  const isTimed = (device: IKernelDevice): device is Timed =>
    Boolean(device.compute) && (device.compute?.share_used !== null || device.compute?.fair_share !== null);
  return kernel.devices.filter(isTimed);
}

/**
 * Whether any of its devices works for it, or should: the time of a kernel at rest is not worth a
 * line.
 */
export function hasTime(kernel: IKernel): boolean {
  return timedDevices(kernel).some(({ compute }) => compute.fair_share !== null || (compute.share_used ?? 0) > 0);
}

/**
 * How a device's time divides for one kernel, in per cent that add up to 100: used, its own but not
 * used, others'.
 */
export function shareParts(compute: ICompute): { used: number; held: number; free: number } {
  const used = within(compute.share_used ?? 0);
  const held = Math.max(0, within(compute.fair_share ?? 0) - used);
  return { used, held, free: 100 - used - held };
}

/** `25%`; a part that is not nothing is not shown as nothing. */
export function formatPercent(part: number): string {
  const percent = 100 * part;
  return percent > 0 && percent < 1 ? '<1%' : `${Math.round(percent)}%`;
}

/** `1.03×`: launches take 3 % longer than alone. */
export function formatSlowdown(slowdown: number): string {
  return `${slowdown.toFixed(2)}×`;
}

/** `2.0 ms`, or seconds from one on. */
export function formatMoment(seconds: number): string {
  return seconds < 1 ? `${(1000 * seconds).toFixed(1)} ms` : `${seconds.toFixed(1)} s`;
}

function within(part: number): number {
  return Math.min(Math.max(100 * part, 0), 100);
}
