// Applies an event to the last status, until the next one arrives. Pure.

import { IKernel, IKernelEvent, IResidency, IResize, IStatus, KernelState } from '../tokens';

/**
 * Return the status with this event applied; the same object if it lists no such kernel. Other
 * fields stay.
 */
export function patch(status: IStatus, event: IKernelEvent, now: Date): IStatus {
  const kernels = status.kernels.map(kernel => (kernel.id === event.kernel_id ? patched(kernel, event, now) : kernel));
  return { ...status, kernels };
}

const NUMBERS_COME_LATER: IResize['wait_reason'] = {
  code: 'not_planned',
  requested: { gpus: 0, memory_bytes: null },
  free: { gpus: null, memory_bytes: null, device: null },
  host_memory: null
};

const NOT_QUEUED = {
  queue_position: null,
  queue_length: null,
  wait_reason: null,
  expected_start: null,
  predicted_start: null
};

function patched(kernel: IKernel, event: IKernelEvent, now: Date): IKernel {
  const { reason, gpus, memory_limit_bytes, used_bytes, over_limit_bytes } = event;
  const granted = event.resize?.state === 'granted' ? event.resize : null;
  return {
    ...kernel,
    state: event.state as KernelState,
    // Events of these states carry their reason; the status has the reason of each device.
    reason: event.kind === 'paused' || event.kind === 'evicted' ? kernel.reason : reason,
    ...(event.state === 'queued' ? null : NOT_QUEUED),
    ...{ gpus, memory_limit_bytes, used_bytes, over_limit_bytes },
    requested_memory_bytes: granted ? granted.requested_memory_bytes : kernel.requested_memory_bytes,
    priority: granted ? priorityOf(granted.priority, kernel) : kernel.priority,
    residency: residency(kernel.residency, event),
    resize: resize(kernel, event, now)
  };
}

function residency(before: IResidency | null, event: IKernelEvent): IResidency | null {
  return before && { ...before, swapped_bytes: event.swapped_bytes, queued: event.queued };
}

/**
 * Update the wait from an event, which carries its reason alone; other fields stay, or are null
 * until the next status.
 */
function resize(kernel: IKernel, event: IKernelEvent, now: Date): IResize | null {
  const request = event.resize;
  if (request === null || request.state !== 'queued') {
    return null;
  }
  return {
    ...request,
    state: 'queued',
    priority: priorityOf(request.priority, kernel),
    reason: request.reason ?? '',
    position: request.position ?? 1,
    queue_length: Math.max(kernel.resize?.queue_length ?? 1, request.position ?? 1),
    wait_reason: kernel.resize?.wait_reason ?? NUMBERS_COME_LATER,
    expected_start: kernel.resize?.expected_start ?? null,
    since: kernel.resize?.since ?? now.toISOString()
  };
}

function priorityOf(word: string, kernel: IKernel): IKernel['priority'] {
  return word === 'normal' || word === 'low' ? word : kernel.priority;
}
