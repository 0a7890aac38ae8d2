// The state of a kernel in a word or two, for lists that hear of changes and ask for no figures:
// whether it is busy, and since when it is idle, is not said.

import { IKernel, ITranslation } from '../tokens';

export function stateWord(kernel: IKernel, trans: ITranslation): string {
  switch (kernel.state) {
    case 'queued':
      return kernel.queue_position === null
        ? trans.__('queued')
        : trans.__('queued: position %1 of %2', String(kernel.queue_position), String(kernel.queue_length));
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
