// Texts about where a kernel's memory is. The server computes the amounts.

import { TranslationBundle } from '@jupyterlab/translation';

import { formatBytes, formatTime } from '../../base/quantities';
import { queuedText } from '../../model/state_word';
import { inSeconds } from '../../model/waits';
import { IKernel } from '../../tokens';

/** Whether the kernel has a process with GPU memory, on the GPU or swapped out. */
export function isRunning(kernel: IKernel): boolean {
  return ['on_gpu', 'swapped_out', 'restoring', 'checkpointed'].includes(kernel.state);
}

/** The states other than that of a kernel that simply runs. */
export function residencyState(kernel: IKernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'swapped_out':
      return idle(trans.__('swapped out'), kernel, trans);
    case 'restoring':
      return trans.__('restoring');
    case 'checkpointed':
      return idle(trans.__('checkpointed'), kernel, trans);
    default:
      return String(kernel.state);
  }
}

function idle(state: string, kernel: IKernel, trans: TranslationBundle): string {
  return kernel.idle_since
    ? trans.__('%1, idle since %2', state, formatTime(kernel.idle_since, new Date()))
    : trans.__('%1, idle', state);
}

/** Facts about swapped-out memory, memory beyond the limit, and waits. */
export function residencyFacts(kernel: IKernel, trans: TranslationBundle): string[] {
  const said: string[] = [];
  const residency = kernel.residency;
  if (residency && residency.swapped_bytes > 0) {
    said.push(trans.__('%1 in host memory', formatBytes(residency.swapped_bytes)));
  }
  const seconds = residency?.restore_seconds ?? null;
  if (seconds !== null && ['swapped_out', 'checkpointed'].includes(kernel.state)) {
    said.push(trans.__('about %1 to restore', inSeconds(seconds)));
  }
  if (kernel.over_limit_bytes > 0) {
    said.push(trans.__('over the memory limit by %1', formatBytes(kernel.over_limit_bytes)));
  }
  if (residency && residency.mode === 'off') {
    said.push(residency.refusal ? trans.__('never swapped: %1', residency.refusal) : trans.__('never swapped'));
  }
  if (kernel.resize) {
    said.push(trans.__('resize %1', queuedText(kernel.resize.position, trans)));
  }
  return said;
}
