// Texts of a kernel's entry: its size, its state, the facts always shown, and the folded ones.

import { TranslationBundle } from '@jupyterlab/translation';

import { kernelParts } from '../../model/device_parts';
import { gpuSeconds } from '../../model/compute';
import { queuedText } from '../../model/state_word';
import { expected } from '../../model/waits';
import { formatBytes, formatPart, formatSeconds, formatShare, formatTime } from '../../base/quantities';
import { IHostMemory, IKernel } from '../../tokens';
import { residencyFacts, residencyState } from './residency';
import { sharedText } from '../sharing/share_words';

export function sizeText(kernel: IKernel, trans: TranslationBundle): string {
  if (kernel.gpus === 0) {
    return trans.__('no GPU');
  }
  const share = formatShare(kernel.gpus);
  return kernel.gpus > 1 ? trans.__('%1 GPUs', share) : trans.__('%1 GPU', share);
}

/** Facts that are always shown: the state, and exceptional conditions. */
export function kernelFacts(kernel: IKernel, showsDevice: boolean, trans: TranslationBundle): string[] {
  const said = [stateText(kernel, trans)];
  const shared = sharedText(kernel, trans);
  if (shared !== null) {
    said.push(shared);
  }
  if (kernel.priority === 'low') {
    said.push(trans.__('low priority'));
  }
  if (showsDevice && kernel.devices.length === 1) {
    said.push(trans.__('GPU %1', String(kernel.devices[0]?.index)));
  }
  if (kernel.failed_allocations > 0) {
    said.push(trans._n('%1 allocation refused', '%1 allocations refused', kernel.failed_allocations));
  }
  const { burstable } = kernelParts(kernel);
  if (burstable > 0) {
    said.push(trans.__('%1 beyond its guaranteed memory', formatBytes(burstable)));
  }
  return said.concat(residencyFacts(kernel, trans));
}

/** Facts that are folded away. */
export function kernelDetails(kernel: IKernel, trans: TranslationBundle): string[] {
  const said: string[] = [];
  if (kernel.gpus > 0) {
    said.push(kernel.priority === 'normal' ? trans.__('normal priority') : trans.__('low priority'));
  }
  if (kernel.peak_bytes > 0) {
    said.push(trans.__('peak %1', formatBytes(kernel.peak_bytes)));
  }
  if (kernel.guaranteed_memory_bytes > 0) {
    said.push(trans.__('%1 guaranteed', formatBytes(kernel.guaranteed_memory_bytes)));
  }
  const seconds = gpuSeconds(kernel);
  if (seconds > 0) {
    said.push(trans.__('GPU time %1', formatSeconds(seconds)));
  }
  if (kernel.context_bytes > 0) {
    said.push(trans.__('GPU contexts, counted in its memory limit: %1', formatBytes(kernel.context_bytes)));
  }
  for (const { reason, bytes } of kernel.residency?.unswappable ?? []) {
    said.push(trans.__('stays on the GPU when swapped out: %1 (%2)', formatBytes(bytes), reason));
  }
  if (kernel.host_memory && kernel.host_memory.used_bytes > 0) {
    said.push(hostMemory(kernel.host_memory, trans));
  }
  return said;
}

function hostMemory(host: IHostMemory, trans: TranslationBundle): string {
  return host.limit_bytes === null
    ? trans.__('host memory locked: %1', formatBytes(host.used_bytes))
    : trans.__('host memory locked: %1 of %2', ...formatPart(host.used_bytes, host.limit_bytes));
}

function stateText(kernel: IKernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'queued':
      return expected(queuedText(kernel.queue_position, trans), kernel, trans);
    case 'starting':
      return trans.__('starting');
    case 'ended':
      return trans.__('ended');
    case 'on_gpu':
      return kernel.gpus === 0 ? (kernel.execution_state ?? trans.__('running')) : residentText(kernel, trans);
    default:
      return residencyState(kernel, trans);
  }
}

function residentText(kernel: IKernel, trans: TranslationBundle): string {
  if (kernel.execution_state === 'busy') {
    return trans.__('on GPU, busy');
  }
  if (kernel.idle_since) {
    return trans.__('on GPU, idle since %1', formatTime(kernel.idle_since, new Date()));
  }
  return kernel.execution_state === 'idle' ? trans.__('on GPU, idle') : trans.__('on GPU');
}
