// Decides which events a user is notified of: each once, also across reloads of the page. No DOM.

import { ShareNews, ShareReader } from './share_news';
import { IKernel, IMemory, IOwnerMessage, IResize, IScheduledTermination, IStatus, ITermination } from '../tokens';

/** An event, past or scheduled, of a kernel of this user. */
export type News =
  | { readonly kind: 'ended'; readonly key: string; readonly kernel: IKernel; readonly termination: ITermination }
  | { readonly kind: 'restarted'; readonly key: string; readonly kernel: IKernel; readonly termination: ITermination }
  | { readonly kind: 'soon'; readonly key: string; readonly kernel: IKernel; readonly soon: IScheduledTermination }
  /** The kernel runs, and an allocation failed. */
  | { readonly kind: 'short'; readonly key: string; readonly kernel: IKernel; readonly needed: number }
  /** A change of size that was queued is in force. */
  | { readonly kind: 'resized'; readonly key: string; readonly kernel: IKernel }
  /** The kernel got its GPU after a long wait. */
  | { readonly kind: 'served'; readonly key: string; readonly kernel: IKernel }
  /** An administrator wrote to the kernel's owner. */
  | { readonly kind: 'message'; readonly key: string; readonly kernel: IKernel; readonly message: IOwnerMessage }
  | ShareNews;

/** A user who waited for less time is still looking, and needs no notification. */
const LONG_MS = 30000;

/** The most keys that a browser stores; the server lists far fewer. */
const REMEMBERED = 500;

/** A bounded list of texts in the browser's storage; the oldest are dropped. */
export class Remembered {
  constructor(private readonly _memory: IMemory) {
    const kept = Private.parse(_memory.get());
    this._texts = new Set(kept ?? []);
    this.isNew = kept === null;
  }

  /**
   * Whether the storage held nothing, as in a browser that opens this server for the first time.
   */
  readonly isNew: boolean;

  has(text: string): boolean {
    return this._texts.has(text);
  }

  add(texts: readonly string[]): void {
    const fresh = texts.filter(text => !this._texts.has(text));
    if (fresh.length > 0 || this._memory.get() === null) {
      // Another tab may have stored keys since.
      const others = Private.parse(this._memory.get()) ?? [];
      this._texts = new Set([...new Set([...others, ...this._texts, ...fresh])].slice(-REMEMBERED));
      this._memory.set(JSON.stringify([...this._texts]));
    }
  }

  private _texts: Set<string>;
}

/**
 * Finds the news in each status. In a browser that is new to this server, past terminations are not
 * news.
 */
export class NewsReader {
  constructor(memory: IMemory) {
    this._told = new Remembered(memory);
    this._isFirst = this._told.isNew;
  }

  read(status: IStatus, now: Date): News[] {
    const found = [...newsOf(status), ...this._served(status, now.getTime()), ...this._resized(status)];
    const isPast = (news: News): boolean => news.kind === 'ended' || news.kind === 'restarted';
    const isLate = (news: News): boolean => (this._isFirst && isPast(news)) || this._isShrunk(news);
    const fresh = found.filter(news => !this._told.has(news.key) && !isLate(news));
    const shares = this._shares.read(status).filter(({ news, isAgain }) => isAgain || !this._told.has(news.key));
    const told = [...found, ...shares.map(({ news }) => news)];
    this._told.add(told.map(news => news.key));
    this._isFirst = false;
    this._limits = new Map(mine(status).map(kernel => [lackOf(kernel), kernel.memory_limit_bytes]));
    return [...fresh, ...shares.map(({ news }) => news)];
  }

  /**
   * The keys of the news that still hold. A lack of memory is over, too, once the kernel has freed
   * half of what it had then.
   */
  standing(status: IStatus): ReadonlySet<string> {
    const holding = new Set<string>();
    const used = new Map<string, number>();
    for (const news of newsOf(status)) {
      if (news.kind !== 'short') {
        holding.add(news.key);
        continue;
      }
      const then = Math.max(this._used.get(news.key) ?? 0, news.kernel.used_bytes);
      used.set(news.key, then);
      if (news.kernel.used_bytes > then / 2 || then === 0) {
        holding.add(news.key);
      }
    }
    this._used = used;
    return holding;
  }

  /** Whether the same lack of memory is found again only because its user made the kernel smaller. */
  private _isShrunk(news: News): boolean {
    return news.kind === 'short' && news.kernel.memory_limit_bytes < (this._limits.get(lackOf(news.kernel)) ?? 0);
  }

  /** Kernels whose change of size was queued in the last status, and is in force now. */
  private _resized(status: IStatus): News[] {
    const resized: News[] = [];
    const queued = new Map<string, IResize>();
    for (const kernel of mine(status)) {
      const wanted = this._queued.get(kernel.id);
      if (kernel.resize) {
        queued.set(kernel.id, kernel.resize);
      } else if (wanted !== undefined && kernel.state !== 'ended' && hasSize(kernel, wanted)) {
        resized.push({ kind: 'resized', key: `resized ${kernel.id} ${wanted.since}`, kernel });
      }
    }
    this._queued = queued;
    return resized;
  }

  /**
   * Kernels that waited in the last status and do not wait now. A page that loaded meanwhile counts
   * from its load.
   */
  private _served(status: IStatus, now: number): News[] {
    const served: News[] = [];
    const waiting = new Map<string, number>();
    for (const kernel of mine(status)) {
      const since = this._waiting.get(kernel.id);
      if (isWaiting(kernel)) {
        const told = (kernel.residency?.queued?.seconds ?? 0) * 1000;
        waiting.set(kernel.id, Math.min(since ?? now, now - told));
      } else if (since !== undefined && now - since > LONG_MS && kernel.state !== 'ended') {
        served.push({ kind: 'served', key: `served ${kernel.id} ${since}`, kernel });
      }
    }
    this._waiting = waiting;
    return served;
  }

  private readonly _shares = new ShareReader();
  private readonly _told: Remembered;
  /** The memory limits of the last status, by kernel and its last lack of memory. */
  private _limits: ReadonlyMap<string, number> = new Map();
  private _isFirst: boolean;
  private _waiting: ReadonlyMap<string, number> = new Map();
  private _queued: ReadonlyMap<string, IResize> = new Map();
  /** The most memory that a kernel had since its lack of memory was told, by its key. */
  private _used: ReadonlyMap<string, number> = new Map();
}

/** Return all news in a status about this user's own kernels, shown before or not. */
export function newsOf(status: IStatus): News[] {
  const news: News[] = [];
  for (const kernel of mine(status)) {
    const { termination, last_crash, scheduled_termination: soon, owner_message: message } = kernel;
    // An administrator, who may stop the server, knows that kernels ended with it.
    if (termination && termination.by !== status.user.name && !(termination.code === 'stopped' && status.user.role === 'admin')) {
      news.push({ kind: 'ended', key: `ended ${kernel.id} ${termination.at}`, kernel, termination });
    }
    if (last_crash) {
      news.push({ kind: 'restarted', key: `restarted ${kernel.id} ${last_crash.at}`, kernel, termination: last_crash });
    }
    if (soon) {
      news.push({ kind: 'soon', key: `soon ${kernel.id} ${soon.at}`, kernel, soon });
    }
    if (message) {
      news.push({ kind: 'message', key: `message ${kernel.id} ${message.at}`, kernel, message });
    }
    const needed = kernel.required_bytes ?? 0;
    if (needed > kernel.memory_limit_bytes && kernel.memory_limit_bytes > 0 && kernel.state !== 'ended') {
      const key = `short ${kernel.id} ${kernel.memory_limit_bytes} ${kernel.last_failed_allocation_at ?? ''}`;
      news.push({ kind: 'short', key, kernel, needed });
    }
  }
  return news;
}

function lackOf(kernel: IKernel): string {
  return `${kernel.id} ${kernel.last_failed_allocation_at ?? ''}`;
}

function hasSize(kernel: IKernel, wanted: IResize): boolean {
  const memory = kernel.requested_memory_bytes === wanted.requested_memory_bytes;
  return memory && kernel.gpus === wanted.gpus && kernel.priority === wanted.priority;
}

function mine(status: IStatus): readonly IKernel[] {
  return status.kernels.filter(kernel => kernel.owner === status.user.name);
}

/** Whether a kernel waits for capacity, to start or to be restored; a running copy is no wait. */
function isWaiting(kernel: IKernel): boolean {
  return kernel.state === 'queued' || (kernel.state === 'restoring' && (kernel.residency?.queued ?? null) !== null);
}

namespace Private {
  export function parse(text: string | null): string[] | null {
    try {
      const found: unknown = JSON.parse(text ?? 'null');
      return Array.isArray(found) ? found.filter(item => typeof item === 'string') : null;
    } catch {
      return null;
    }
  }
}
