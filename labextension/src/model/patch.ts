// What an event changes in the last status, before the next one is asked for. Pure.

import { IKernel, IKernelEvent, IResidency, IResize, IStatus, KernelState } from '../tokens';

/** The status with this event in it; the same one where it has no such kernel. What events do not tell stays. */
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

const NOT_QUEUED = { queue_position: null, queue_length: null, wait_reason: null, expected_start: null };

function patched(kernel: IKernel, event: IKernelEvent, now: Date): IKernel {
  const { reason, gpus, quota_bytes, used_bytes, over_quota_bytes } = event;
  const granted = event.resize?.state === 'granted' ? event.resize : null;
  return {
    ...kernel,
    state: event.state as KernelState,
    // The reason of these is the event's own: why it is held out, the status tells of each device.
    reason: event.kind === 'held_out' || event.kind === 'reclaimed' ? kernel.reason : reason,
    ...(event.state === 'pending' ? null : NOT_QUEUED),
    ...{ gpus, quota_bytes, used_bytes, over_quota_bytes },
    memory_limit_bytes: granted ? granted.memory_limit_bytes : kernel.memory_limit_bytes,
    workload_class: granted ? workloadClass(granted.workload_class, kernel) : kernel.workload_class,
    residency: residency(kernel.residency, event),
    resize: resize(kernel, event, now)
  };
}

function residency(before: IResidency | null, event: IKernelEvent): IResidency | null {
  return before && { ...before, swapped_bytes: event.swapped_bytes, waits: event.waits };
}

/** Events tell no more of its wait than the reason: the rest stays as it was, or is not known before the next status. */
function resize(kernel: IKernel, event: IKernelEvent, now: Date): IResize | null {
  const wish = event.resize;
  if (wish === null || wish.state !== 'pending') {
    return null;
  }
  return {
    ...wish,
    state: 'pending',
    workload_class: workloadClass(wish.workload_class, kernel),
    reason: wish.reason ?? '',
    position: wish.position ?? 1,
    queue_length: Math.max(kernel.resize?.queue_length ?? 1, wish.position ?? 1),
    wait_reason: kernel.resize?.wait_reason ?? NUMBERS_COME_LATER,
    expected_start: kernel.resize?.expected_start ?? null,
    since: kernel.resize?.since ?? now.toISOString()
  };
}

function workloadClass(word: string, kernel: IKernel): IKernel['workload_class'] {
  return word === 'production' || word === 'opportunistic' ? word : kernel.workload_class;
}
