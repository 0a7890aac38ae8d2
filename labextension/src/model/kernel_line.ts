// What one line says of a notebook's kernel: `0.25 GPU · 3.1 / 20 GiB · on GPU`. Pure: amounts come
// from the server.

import { TranslationBundle } from '@jupyterlab/translation';

import { isSharedWithMe, suffices } from './kernel_access';
import { formatPart, formatShare } from '../base/quantities';
import { IKernel, IMemoryQueue } from '../tokens';
import { queuedText } from './state_word';
import { awaitsRoom } from './waits';

/** `0.25 GPU`, `2.5 GPUs`, `No GPU` */
export function kernelSize(gpus: number, trans: TranslationBundle): string {
  if (gpus === 0) {
    return trans.__('No GPU');
  }
  return gpus > 1 ? trans.__('%1 GPUs', formatShare(gpus)) : trans.__('%1 GPU', formatShare(gpus));
}

/**
 * Used and limit without empty decimals: `3.1 / 20 GiB`. Null while it has no memory to speak of.
 */
export function kernelMemory(kernel: IKernel): string | null {
  if (!hasMemory(kernel) || kernel.memory_limit_bytes <= 0) {
    return null;
  }
  const [used, quota] = formatPart(kernel.used_bytes, kernel.memory_limit_bytes).map(text => text.replace(/\.0(?= |$)/, ''));
  return `${used} / ${quota}`;
}

/** The kernel's state in a few plain words. */
export function kernelState(kernel: IKernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'queued':
      return queuedText(kernel.queue_position, trans);
    case 'starting':
      return trans.__('starting');
    case 'on_gpu':
      return onGpu(kernel, trans);
    case 'swapped_out':
      return trans.__('swapped out');
    case 'checkpointed':
      return trans.__('checkpointed');
    case 'restoring':
      return wakes(kernel, trans);
    case 'ended':
      return trans.__('ended');
    default:
      return String(kernel.state); // a newer server has a state that this page does not know
  }
}

/** What the user may do with a kernel that another user shares; null for the user's own. */
export function kernelShared(kernel: IKernel, trans: TranslationBundle): string | null {
  if (!isSharedWithMe(kernel)) {
    return null;
  }
  return suffices(kernel, 'write') ? trans.__('shared') : trans.__('shared, read-only');
}

/** The complete line. */
export function kernelLine(kernel: IKernel, trans: TranslationBundle): string {
  const memory = kernelMemory(kernel);
  const shared = kernelShared(kernel, trans);
  const parts = [kernelSize(kernel.gpus, trans), memory, kernelState(kernel, trans), shared];
  return parts.filter(part => part !== null).join(' · ');
}

/** The line as a sentence, with the reason if there is one. */
export function kernelHint(kernel: IKernel, trans: TranslationBundle): string {
  const said = [trans.__('GPU of this kernel: %1', kernelSize(kernel.gpus, trans))];
  if (hasMemory(kernel) && kernel.memory_limit_bytes > 0) {
    said.push(trans.__('%1 of %2 of memory used', ...formatPart(kernel.used_bytes, kernel.memory_limit_bytes)));
  }
  said.push(kernelState(kernel, trans));
  if (isSharedWithMe(kernel)) {
    said.push(trans.__('shared by %1', kernel.owner));
  }
  const reason = kernel.termination?.message ?? kernel.reason;
  return reason ? `${said.join(', ')}. ${reason}` : said.join(', ');
}

/** Progress of a copy in whole per cent; null if no copy runs or the server does not report one. */
export function movedPercent(kernel: IKernel): number | null {
  const moving = kernel.residency?.moving;
  if (!moving || moving.total_bytes <= 0) {
    return null;
  }
  return Math.min(100, Math.max(0, Math.floor((100 * moving.done_bytes) / moving.total_bytes)));
}

function hasMemory(kernel: IKernel): boolean {
  return ['on_gpu', 'swapped_out', 'restoring', 'checkpointed'].includes(kernel.state);
}

function onGpu(kernel: IKernel, trans: TranslationBundle): string {
  if (kernel.gpus === 0) {
    return trans.__('running');
  }
  return leaves(kernel, trans) ?? (awaitsRoom(kernel) ? forMemory(kernel.residency.queued, trans) : trans.__('on GPU'));
}

/**
 * The copy's direction and progress; null if none runs. An event may change the state before its
 * figures arrive.
 */
function leaves(kernel: IKernel, trans: TranslationBundle): string | null {
  if (kernel.residency?.state !== 'swapping_out') {
    return null;
  }
  const percent = movedPercent(kernel);
  return percent === null ? trans.__('swapping out') : trans.__('swapping out: %1%', percent);
}

function wakes(kernel: IKernel, trans: TranslationBundle): string {
  const percent = movedPercent(kernel);
  if (percent !== null) {
    return trans.__('restoring: %1%', percent);
  }
  const { queued: waits, state } = kernel.residency ?? {};
  if (!waits || state === 'swapping_in') {
    return trans.__('restoring'); // it has its room
  }
  return forMemory(waits, trans);
}

function forMemory({ ahead }: IMemoryQueue, trans: TranslationBundle): string {
  return ahead > 0 ? queuedText(ahead + 1, trans) : trans.__('queued for memory');
}
