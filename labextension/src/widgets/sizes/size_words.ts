// What sizes, refusals and dry runs read as in the picker.

import { TranslationBundle } from '@jupyterlab/translation';

import { kernelSize } from '../../model/kernel_line';
import { queuedText } from '../../model/state_word';
import { formatBytes } from '../../base/quantities';
import { problemOf, stepped } from '../../sizes/resize_request';
import { sharingText } from '../../sizes/sharing_words';
import { label, Refusal } from '../../sizes/sizes';
import { IDryRun, Priority } from '../../tokens';

const MOST_OF_A_NAME = 60;

/** `4 GiB`, `3.5 GiB` */
export function gib(bytes: number): string {
  return formatBytes(bytes).replace('.0 ', ' ');
}

export function priorityText(priority: Priority, trans: TranslationBundle): string {
  return priority === 'normal' ? trans.__('normal') : trans.__('low');
}

export function priorityHint(priority: Priority, trans: TranslationBundle): string {
  return priority === 'normal'
    ? trans.__('protected from low-priority kernels')
    : trans.__('uses spare GPU time and memory, and waits when there is none');
}

/**
 * `Starts at once, with up to 4 GiB of GPU memory.`; why it waits or never fits in the server's
 * words.
 */
export function dryRunText(dryRun: IDryRun, trans: TranslationBundle, isRunning = false): string {
  const { outcome, memory_limit_bytes: limit, message } = dryRun;
  if (outcome === 'starts' && !isRunning && limit !== null) {
    const starts = trans.__('Starts at once, with up to %1 of GPU memory', gib(limit));
    const more = sharingText(dryRun, trans);
    return more === null ? `${starts}.` : `${starts}; ${more}.`;
  }
  return sentence(message);
}

/** The dry run in the few words that a card has room for: `starts now`, `queued: 2 ahead`, `never fits`. */
export function cardText(dryRun: IDryRun, trans: TranslationBundle, isRunning: boolean): string {
  const { outcome, position, message, memory_sharing: sharing, keeps_memory: keeps } = dryRun;
  switch (outcome) {
    case 'starts':
      if (isRunning) {
        return trans.__('changes now');
      }
      return sharing ? trans.__('starts now, shares memory') : keeps ? trans.__('starts now, keeps its memory') : trans.__('starts now');
    case 'queued':
      return queuedText(position, trans);
    case 'never':
      return message.replace(/:.*/s, '');
  }
}

/** The reason why a number is invalid, and what to enter; null if it is valid. */
export function numberProblem(text: string, field: INumberField, trans: TranslationBundle): string | null {
  const { unit, step, min, max } = field;
  switch (problemOf(text, step, field)) {
    case null:
      return null;
    case 'no-number':
      return trans.__('Enter a number from %1 to %2.', String(min), String(max));
    case 'too-small':
      return trans.__('%1 %2 is too small. Enter %3 to %4.', text, unit, String(min), String(max));
    case 'too-large':
      return trans.__('%1 %2 is too large. Enter %3 to %4.', text, unit, String(min), String(max));
    case 'off-step':
      return trans.__(
        '%1 %2 is between two steps of %3. Enter %4, for example.',
        text,
        unit,
        String(step),
        String(stepped(text, step, field))
      );
  }
}

interface INumberField {
  readonly unit: string;
  readonly step: number;
  readonly min: number;
  readonly max: number;
}

/** The reason why a document does not get its size, and the proposed one. */
export function refusalText(refusal: Refusal, hasNearest: boolean, trans: TranslationBundle): string {
  const proposal = hasNearest ? trans.__('The nearest available size is selected.') : trans.__('Choose another.');
  return `${reasonText(refusal, trans)} ${proposal}`;
}

function reasonText(refusal: Refusal, trans: TranslationBundle): string {
  const { kind } = refusal;
  const base = elided(refusal.base);
  if (kind === 'unreadable') {
    return trans.__('This document requests a size of %1 that cannot be read.', base);
  }
  const size = refusal.asked === null ? trans.__('no GPU') : label(refusal.asked);
  switch (kind) {
    case 'no-base':
      return trans.__('This document requests %1 on %2, and no kernel of that name is installed here.', size, base);
    case 'too-large':
      return trans.__('This document requests %1; the largest available size is %2.', size, kernelSize(refusal.largest, trans));
    case 'priority':
      return trans.__('This document requests %1 with normal priority, which you may not have here.', size);
    case 'never':
      return trans.__('This document requests %1, which is not available here (%2).', size, refusal.message);
  }
}

/** The size comes from the document, not from this dialog. */
function elided(name: string): string {
  return name.length > MOST_OF_A_NAME ? `${name.slice(0, MOST_OF_A_NAME)}…` : name;
}

function sentence(text: string): string {
  const full = text.slice(0, 1).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(full) ? full : `${full}.`;
}
