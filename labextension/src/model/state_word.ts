// The state of a kernel in a word or two, for lists that hear of changes and ask for no figures:
// whether it is busy, and since when it is idle, is not said.

import { IKernel, ITranslation } from '../tokens';

export function stateWord(kernel: IKernel, trans: ITranslation): string {
  switch (kernel.state) {
    case 'queued':
      return queuedText(kernel.queue_position, trans);
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
    default:
      return trans.__('ended');
  }
}

/**
 * The place in a queue, for all that waits: a start, a larger size, memory. Null where there is no
 * order. It stands alone in the status bar, in lists and on cards, and inside the sentences of
 * `residency.tsx` and `resize_form.tsx`.
 */
export function queuedText(position: number | null, trans: ITranslation): string {
  if (position === null) {
    return trans.__('queued');
  }
  return position > 1 ? trans.__('queued: %1 ahead', String(position - 1)) : trans.__('queued: next');
}
