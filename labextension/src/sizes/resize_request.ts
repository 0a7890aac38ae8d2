// A request for another size of a running kernel: the allowed range, and the difference from the
// current size. Pure.

import { IDevice, IKernel, ISizeRequest, Priority } from '../tokens';

const GIB = 2 ** 30;
/**
 * Limits in names of sizes are whole, so that a kernel can be started again at the size that it was
 * given.
 */
export const MEMORY_STEP_GIB = 1;

/** A size as a form holds it. */
export interface ISizeDraft {
  readonly gpus: number;
  /** null: the share's part of each device. */
  readonly memoryGib: number | null;
  readonly priority: Priority;
}

/** The size that a kernel has; while a change is queued, the size before it. */
export function sizeOf(kernel: IKernel): ISizeDraft {
  const limit = kernel.requested_memory_bytes;
  return { gpus: kernel.gpus, memoryGib: limit === null ? null : limit / GIB, priority: kernel.priority };
}

/** A kernel keeps its devices, so that its share stays on as many. */
export function shareRange(kernel: IKernel): { min: number; max: number } {
  const devices = Math.max(1, kernel.devices.length || Math.ceil(kernel.gpus));
  return { min: hundredths(devices - 1 + 0.01), max: devices };
}

/** The largest memory limit: all memory of the kernel's devices, as far as it is known. */
export function memoryRange(kernel: IKernel, devices: readonly IDevice[]): { min: number; max: number } {
  const mine = new Set(kernel.devices.map(device => device.uuid));
  const total = devices.filter(device => mine.has(device.uuid)).reduce((sum, device) => sum + device.memory_bytes, 0);
  return { min: MEMORY_STEP_GIB, max: Math.max(MEMORY_STEP_GIB, Math.floor(Math.max(total, kernel.memory_limit_bytes) / GIB)) };
}

/** The initial value of a memory limit: at least what the kernel may use now. */
export function firstMemoryGib(kernel: IKernel): number {
  return Math.max(MEMORY_STEP_GIB, Math.ceil(kernel.memory_limit_bytes / GIB));
}

/** The difference as a request, and null where there is none. */
export function change(kernel: IKernel, draft: ISizeDraft): Partial<ISizeRequest> | null {
  const has = sizeOf(kernel);
  const request: { gpus?: number; memory?: number | null; priority?: Priority } = {};
  if (hundredths(draft.gpus) !== hundredths(has.gpus)) {
    request.gpus = hundredths(draft.gpus);
  }
  if (draft.memoryGib === null ? has.memoryGib !== null : draft.memoryGib !== has.memoryGib) {
    request.memory = bytes(draft.memoryGib);
  }
  if (draft.priority !== has.priority) {
    request.priority = draft.priority;
  }
  return Object.keys(request).length > 0 ? request : null;
}

/** Return the complete request, for a dry run. */
export function requestOf(draft: ISizeDraft): ISizeRequest {
  const memory = bytes(draft.memoryGib);
  return { gpus: hundredths(draft.gpus), memory, priority: draft.priority };
}

/** Return the reason why a text is no number in this range and step; null if it is one. */
export function problemOf(text: string, step: number, range: { min: number; max: number }): NumberProblem | null {
  const value = numberOf(text);
  if (value === null) {
    return 'no-number';
  }
  if (value < range.min || value > range.max) {
    return value < range.min ? 'too-small' : 'too-large';
  }
  const steps = value * Math.round(1 / step);
  return Math.abs(steps - Math.round(steps)) > 1e-6 ? 'off-step' : null;
}

export type NumberProblem = 'no-number' | 'too-small' | 'too-large' | 'off-step';

/** Parse a number in this range, rounded to steps; null if the text is none. */
export function stepped(text: string, step: number, range: { min: number; max: number }): number | null {
  const value = numberOf(text);
  if (value === null) {
    return null;
  }
  const inverse = Math.round(1 / step);
  return Math.min(Math.max(Math.round(value * inverse) / inverse, range.min), range.max);
}

function numberOf(text: string): number | null {
  const value = Number(text.trim().replace(',', '.'));
  return text.trim() === '' || !Number.isFinite(value) ? null : value;
}

function bytes(gib: number | null): number | null {
  return gib === null ? null : Math.round(gib * GIB);
}

function hundredths(value: number): number {
  return Math.round(value * 100) / 100;
}
