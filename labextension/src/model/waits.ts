// Decides whether a running cell waits for its kernel's GPU, for what and how long, and what screen
// readers say. Pure.

import { TranslationBundle } from '@jupyterlab/translation';

import { formatFromNow, formatPart, formatSeconds, formatTime } from '../base/quantities';
import { IKernel, IMemoryQueue } from '../tokens';

/** The content of a cell's badge. */
export interface IWait {
  /**
   * queue: waits for a grant; memory: for GPU memory; copy: a copy runs; stopping: interrupted;
   * asleep: swapped out, no GPU call yet.
   */
  readonly kind: 'queue' | 'memory' | 'copy' | 'stopping' | 'asleep';
  /** `waits for GPU memory: 2 ahead, about 3 s` */
  readonly text: string;
  /** The server's reason; null if the text holds it already. */
  readonly why: string | null;
  /** The number of kernels ahead; null if there is no order. */
  readonly ahead: number | null;
  readonly progress: { readonly done: number; readonly total: number } | null;
}

/** Return the badge of a kernel's running cells; null if they do not wait. */
export function waitOf(kernel: IKernel | null, trans: TranslationBundle): IWait | null {
  if (kernel === null || kernel.gpus === 0) {
    return null;
  }
  if (kernel.interrupted_at && (isAway(kernel) || awaitsRoom(kernel))) {
    return stopping(trans);
  }
  switch (kernel.state) {
    case 'queued':
      return queued(kernel, trans);
    case 'restoring':
      return waking(kernel, trans);
    case 'swapped_out':
    case 'checkpointed':
      return kernel.residency?.queued ? forMemory(kernel.residency.queued, trans) : asleep(kernel, trans);
    case 'on_gpu':
      return awaitsRoom(kernel) ? forMemory(kernel.residency.queued, trans) : null;
    default:
      return null;
  }
}

/**
 * Whether an output holds only the relay's notice of a wait, which is for clients without badges.
 */
export function isNotice(text: string): boolean {
  return text.trim() !== '' && text.split('\n').every(line => line === '' || NOTICE.test(line));
}

/** The relay's notices; docs/reference/relay.md lists them. */
const NOTICE = /^\[Aliquot: .*waiting for GPU memory.*\]$/;

/**
 * Announces a wait to screen readers: its start, each change of position, its end; never its
 * seconds.
 */
export class WaitTeller {
  constructor(private readonly _trans: TranslationBundle) {}

  /** Return the next sentence, or null if nothing is new. `nowMs` is monotonic. */
  next(wait: IWait | null, nowMs: number): string | null {
    if (wait === null) {
      return this._over();
    }
    this._since ??= nowMs;
    const told = this._told;
    const isNew = told === null || told.ahead !== wait.ahead || told.kind !== wait.kind;
    const isTime =
      told === null ? nowMs - this._since >= WaitTeller.QUIET_MS : nowMs - told.at >= WaitTeller.BETWEEN_MS;
    if (!isNew || !isTime || wait.kind === 'asleep') {
      return null;
    }
    this._told = { ahead: wait.ahead, kind: wait.kind, at: nowMs };
    return this._trans.__('The cell %1', wait.text);
  }

  private _over(): string | null {
    const wasTold = this._told !== null;
    this._told = null;
    this._since = null;
    return wasTold ? this._trans.__('The cell goes on') : null;
  }

  private _told: { ahead: number | null; kind: IWait['kind']; at: number } | null = null;
  private _since: number | null = null;
}

export namespace WaitTeller {
  /** Shorter waits are not announced. */
  export const QUIET_MS = 1000;
  /** The least time between two sentences about one wait. */
  export const BETWEEN_MS = 10000;
}

function queued(kernel: IKernel, trans: TranslationBundle): IWait {
  const ahead = kernel.queue_position === null ? null : kernel.queue_position - 1;
  const text = ahead
    ? trans._n('waits for a GPU: %1 kernel ahead', 'waits for a GPU: %1 kernels ahead', ahead)
    : ahead === 0
      ? trans.__('waits for a GPU: next in the queue')
      : trans.__('waits for a GPU');
  return { kind: 'queue', text: expected(text, kernel, trans), why: kernel.reason, ahead, progress: null };
}

/** The text of a queued start, with the time at which the gateway expects it, or predicts it. */
export function expected(what: string, kernel: IKernel, trans: TranslationBundle): string {
  const at = kernel.expected_start === null ? '' : formatTime(kernel.expected_start, new Date());
  if (at) {
    return trans.__('%1; expected to start at %2', what, at);
  }
  const predicted = kernel.predicted_start;
  return predicted
    ? trans.__('%1; probably starts in %2', what, formatFromNow(predicted.earliest, predicted.latest, new Date()))
    : what;
}

function waking(kernel: IKernel, trans: TranslationBundle): IWait {
  const moving = kernel.residency?.moving;
  if (moving && moving.total_bytes > 0) {
    const done = Math.min(moving.done_bytes, moving.total_bytes);
    const text = trans.__('waits while its GPU memory is restored: %1 of %2', ...formatPart(done, moving.total_bytes));
    return { kind: 'copy', text, why: null, ahead: null, progress: { done, total: moving.total_bytes } };
  }
  const { queued: waits, state } = kernel.residency ?? {};
  if (waits && state !== 'swapping_in') {
    return forMemory(waits, trans);
  }
  const text = inTime(trans.__('waits while its GPU memory is restored'), waits?.expected_seconds ?? null, trans);
  return { kind: 'copy', text, why: null, ahead: null, progress: null };
}

function forMemory(waits: IMemoryQueue, trans: TranslationBundle): IWait {
  const { ahead, expected_seconds: seconds } = waits;
  const what =
    ahead > 0
      ? trans._n('waits for GPU memory: %1 kernel ahead', 'waits for GPU memory: %1 kernels ahead', ahead)
      : trans.__('waits for GPU memory');
  return { kind: 'memory', text: inTime(what, seconds, trans), why: waits.reason || null, ahead, progress: null };
}

/** Whether the kernel's memory is on the GPU and one of its allocations waits for free memory. */
export function awaitsRoom(kernel: IKernel): kernel is IKernel & { residency: { queued: IMemoryQueue } } {
  return kernel.state === 'on_gpu' && Boolean(kernel.residency?.queued);
}

function isAway(kernel: IKernel): boolean {
  return ['restoring', 'swapped_out', 'checkpointed'].includes(kernel.state);
}

/** The badge of a cell that was interrupted while it waits. */
function stopping(trans: TranslationBundle): IWait {
  return { kind: 'stopping', text: trans.__('is stopping'), why: null, ahead: null, progress: null };
}

/** The badge of a cell that has not used the GPU yet, in a kernel that is swapped out. */
function asleep(kernel: IKernel, trans: TranslationBundle): IWait {
  const what = trans.__('GPU memory is swapped out; it is restored when the cell uses the GPU');
  const text = inTime(what, kernel.residency?.restore_seconds ?? null, trans);
  return { kind: 'asleep', text, why: null, ahead: null, progress: null };
}

function inTime(what: string, seconds: number | null, trans: TranslationBundle): string {
  if (seconds === null) {
    return what;
  }
  return trans.__('%1, about %2', what, inSeconds(seconds));
}

/** A time that is expected, for a sentence with "about". */
export function inSeconds(seconds: number): string {
  return seconds < 60 ? `${Math.max(1, Math.ceil(seconds))} s` : formatSeconds(seconds);
}
