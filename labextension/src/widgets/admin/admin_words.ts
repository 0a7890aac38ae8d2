// Texts of the administrator's view: states, sizes and figures.

import { formatBytes, formatSeconds, formatShare } from '../../base/quantities';
import { IHolderKernel, ITranslation } from '../../tokens';

export const UNKNOWN = '–';

export function nameText(kernel: IHolderKernel): string {
  // A kernel of another server's notebook has no path here.
  return kernel.label || `${kernel.name} ${kernel.id.slice(0, 8)}`.trim();
}

export function stateText(kernel: IHolderKernel, trans: ITranslation): string {
  switch (kernel.state) {
    case 'queued':
      return trans.__('queued');
    case 'starting':
      return trans.__('starting');
    case 'on_gpu':
      return trans.__('on GPU');
    case 'swapped_out':
      return trans.__('swapped out');
    case 'restoring':
      return trans.__('restoring');
    case 'checkpointed':
      return trans.__('checkpointed');
  }
}

export function sizeText(kernel: IHolderKernel, trans: ITranslation): string {
  const share = formatShare(kernel.gpus);
  return kernel.priority === 'low' ? trans.__('%1 low', share) : share;
}

/** GPUs or CPUs in use, with two decimals. */
export function amountText(amount: number | null): string {
  return amount === null ? UNKNOWN : formatShare(amount);
}

export function bytesText(bytes: number | null): string {
  return bytes === null ? UNKNOWN : formatBytes(bytes);
}

export function idleText(seconds: number | null): string {
  return seconds === null ? UNKNOWN : formatSeconds(Math.max(10, seconds));
}

export function shareText(share: number | null): string {
  return share === null ? UNKNOWN : `${Math.round(100 * share)} %`;
}
