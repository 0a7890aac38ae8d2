// What a kernel's line says of where its memory is. Words alone: amounts come from the server.

import { TranslationBundle } from '@jupyterlab/translation';

import { formatBytes, formatTime } from '../../base/quantities';
import { IKernel } from '../../tokens';

/** Whether it has a process that uses its share, wherever its memory is just now. */
export function isRunning(kernel: IKernel): boolean {
  return ['resident', 'swapped', 'waking', 'checkpointed'].includes(kernel.state);
}

/** The states beside those of a kernel that simply runs. */
export function residencyState(kernel: IKernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'swapped':
      return idle(trans.__('swapped'), kernel, trans);
    case 'waking':
      return trans.__('waking');
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

/** What is swapped, what is beyond the quota, what waits. */
export function residencyFacts(kernel: IKernel, trans: TranslationBundle): string[] {
  const said: string[] = [];
  const residency = kernel.residency;
  if (residency && residency.swapped_bytes > 0) {
    said.push(trans.__('%1 in host memory', formatBytes(residency.swapped_bytes)));
  }
  if (kernel.over_quota_bytes > 0) {
    said.push(trans.__('over quota by %1', formatBytes(kernel.over_quota_bytes)));
  }
  if (residency && residency.mode === 'off') {
    said.push(residency.refusal ? trans.__('never swapped: %1', residency.refusal) : trans.__('never swapped'));
  }
  if (kernel.resize) {
    said.push(trans.__('resize waits: position %1', String(kernel.resize.position)));
  }
  return said;
}
