// What sizes, refusals and outlooks read as in the picker.

import { TranslationBundle } from '@jupyterlab/translation';

import { formatBytes, formatShare } from '../quantities';
import { label, Refusal } from '../sizes';
import { IOutlook, WorkloadClass } from '../tokens';

const MOST_OF_A_NAME = 60;

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

/** `Starts at once, with up to 4 GiB of GPU memory.`; why it waits or never fits in the server's words. */
export function outlookText(outlook: IOutlook, trans: TranslationBundle, isRunning = false): string {
  const { outcome, quota_bytes: quota, message } = outlook;
  if (outcome === 'starts' && !isRunning && quota !== null) {
    return trans.__('Starts at once, with up to %1 of GPU memory.', gib(quota));
  }
  return sentence(message);
}

/** Why a document does not get the size that it names, and what is proposed in its place. */
export function refusalText(refusal: Refusal, hasNearest: boolean, trans: TranslationBundle): string {
  const proposal = hasNearest ? trans.__('The nearest that can be had is selected.') : trans.__('Pick another.');
  return `${reasonText(refusal, trans)} ${proposal}`;
}

function reasonText(refusal: Refusal, trans: TranslationBundle): string {
  const { kind } = refusal;
  const base = elided(refusal.base);
  if (kind === 'unreadable') {
    return trans.__('This document asks for a size of %1 that cannot be read.', base);
  }
  const size = refusal.asked === null ? trans.__('no GPU') : label(refusal.asked);
  switch (kind) {
    case 'no-base':
      return trans.__('This document asks for %1 on %2, and no kernel of that name is installed here.', size, base);
    case 'too-large':
      return trans.__('This document asks for %1; the largest here is %2 GPU.', size, formatShare(refusal.largest));
    case 'class':
      return trans.__('This document asks for %1 of the class production, which you may not have here.', size);
    case 'never':
      return trans.__('This document asks for %1, which cannot be had here (%2).', size, refusal.message);
  }
}

/** Whoever wrote the document has chosen it. */
function elided(name: string): string {
  return name.length > MOST_OF_A_NAME ? `${name.slice(0, MOST_OF_A_NAME)}…` : name;
}

function sentence(text: string): string {
  const full = text.slice(0, 1).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(full) ? full : `${full}.`;
}
