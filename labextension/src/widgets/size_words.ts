// What sizes, refusals and outlooks read as in the picker.

import { TranslationBundle } from '@jupyterlab/translation';

import { formatBytes, formatShare } from '../quantities';
import { label, Refusal } from '../sizes';
import { IOutlook, WorkloadClass } from '../tokens';

/** `4 GiB`, `3.5 GiB` */
export function gib(bytes: number): string {
  return formatBytes(bytes).replace('.0 ', ' ');
}

export function className(workloadClass: WorkloadClass, trans: TranslationBundle): string {
  return workloadClass === 'production' ? trans.__('production') : trans.__('opportunistic');
}

export function classHint(workloadClass: WorkloadClass, trans: TranslationBundle): string {
  return workloadClass === 'production'
    ? trans.__('protected from opportunistic kernels')
    : trans.__('uses what is spare, and waits when there is none');
}

/** `Starts at once.`, `Queued behind 2.`, and why it never fits in the server's words, which know its reasons. */
export function outlookText(outlook: IOutlook, trans: TranslationBundle): string {
  if (outlook.outcome === 'starts') {
    return trans.__('Starts at once.');
  }
  if (outlook.outcome === 'queued' && outlook.position !== null) {
    const before = outlook.position - 1;
    return before > 0
      ? trans.__('Queued behind %1.', String(before))
      : trans.__('Queued: the next to start when there is room.');
  }
  return sentence(outlook.message);
}

/** Why a document does not get the size that it names, and what is proposed in its place. */
export function refusalText(refusal: Refusal, trans: TranslationBundle): string {
  if (refusal.kind === 'unreadable') {
    return trans.__('This document asks for a size of %1 that cannot be read. Pick one here.', refusal.base);
  }
  const size = label(refusal.asked);
  const nearest = trans.__('The nearest that can be had is selected.');
  switch (refusal.kind) {
    case 'no-base':
      return trans.__(
        'This document asks for %1 on %2, and no kernel of that name is installed here. Pick another for this size.',
        size,
        refusal.base
      );
    case 'too-large':
      return `${trans.__('This document asks for %1; the largest here is %2 GPU.', size, formatShare(refusal.largest))} ${nearest}`;
    case 'class':
      return `${trans.__('This document asks for %1 of the class production, which you may not have here.', size)} ${nearest}`;
    case 'never':
      return `${trans.__('This document asks for %1.', size)} ${sentence(refusal.message)} ${nearest}`;
  }
}

function sentence(text: string): string {
  const full = text.slice(0, 1).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(full) ? full : `${full}.`;
}
