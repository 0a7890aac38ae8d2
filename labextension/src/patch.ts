// What an event changes in the last status, before the next one is asked for. Pure.

import { IKernel, IKernelEvent, IResidency, IResize, IStatus, KernelState } from './tokens';

/** The status with this event in it; the same one where it has no such kernel. What events do not tell stays. */
export function patch(status: IStatus, event: IKernelEvent, now: Date): IStatus {
  const kernels = status.kernels.map(kernel => (kernel.id === event.kernel_id ? patched(kernel, event, now) : kernel));
  return { ...status, kernels };
}

function patched(kernel: IKernel, event: IKernelEvent, now: Date): IKernel {
  const { reason, gpus, quota_bytes, used_bytes, over_quota_bytes } = event;
  const granted = event.resize?.state === 'granted' ? event.resize : null;
  return {
    ...kernel,
    state: event.state as KernelState,
    // The reason of these is the event's own: why it is held out, the status tells of each device.
    reason: event.kind === 'held_out' || event.kind === 'reclaimed' ? kernel.reason : reason,
    queue_position: event.state === 'pending' ? kernel.queue_position : null,
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

/** Since when it waits is not told: since before, or since now. */
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
    since: kernel.resize?.since ?? now.toISOString()
  };
}

function workloadClass(word: string, kernel: IKernel): IKernel['workload_class'] {
  return word === 'production' || word === 'opportunistic' ? word : kernel.workload_class;
}
