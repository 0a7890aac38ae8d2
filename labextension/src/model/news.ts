// What a user is told of their kernels without having asked: each thing once, also over reloads of the page. No DOM.

import { ShareNews, ShareReader } from './share_news';
import { IKernel, IMemory, IScheduledTermination, IStatus, ITermination } from '../tokens';

/** Something that happened, or will, to a kernel of this user. */
export type News =
  | { readonly kind: 'ended'; readonly key: string; readonly kernel: IKernel; readonly termination: ITermination }
  | { readonly kind: 'restarted'; readonly key: string; readonly kernel: IKernel; readonly termination: ITermination }
  | { readonly kind: 'soon'; readonly key: string; readonly kernel: IKernel; readonly soon: IScheduledTermination }
  /** It runs, and was refused memory that it needed. */
  | { readonly kind: 'short'; readonly key: string; readonly kernel: IKernel; readonly needed: number }
  /** It has what it waited long for. */
  | { readonly kind: 'served'; readonly key: string; readonly kernel: IKernel }
  | ShareNews;

/** Who waited for less has seen it happen. */
const LONG_MS = 30000;

/** As many as a browser remembers; the server lists far fewer. */
const REMEMBERED = 500;

/** A list of texts in a memory, the oldest of which are forgotten. */
export class Remembered {
  constructor(private readonly _memory: IMemory) {
    const kept = Private.parse(_memory.get());
    this._texts = new Set(kept ?? []);
    this.isNew = kept === null;
  }

  /** Whether nothing was remembered yet, as in a browser that sees the server for the first time. */
  readonly isNew: boolean;

  has(text: string): boolean {
    return this._texts.has(text);
  }

  add(texts: readonly string[]): void {
    const fresh = texts.filter(text => !this._texts.has(text));
    if (fresh.length > 0 || this._memory.get() === null) {
      // Another tab may have remembered something since.
      const others = Private.parse(this._memory.get()) ?? [];
      this._texts = new Set([...new Set([...others, ...this._texts, ...fresh])].slice(-REMEMBERED));
      this._memory.set(JSON.stringify([...this._texts]));
    }
  }

  private _texts: Set<string>;
}

/** Tells what is new in each status. In a browser that never saw this server, what ended before is not news. */
export class NewsReader {
  constructor(memory: IMemory) {
    this._told = new Remembered(memory);
    this._isFirst = this._told.isNew;
  }

  read(status: IStatus, now: Date): News[] {
    const found = [...newsOf(status), ...this._served(status, now.getTime())];
    const isPast = (news: News): boolean => news.kind === 'ended' || news.kind === 'restarted';
    const fresh = found.filter(news => !this._told.has(news.key) && !(this._isFirst && isPast(news)));
    const shares = this._shares.read(status).filter(({ news, isAgain }) => isAgain || !this._told.has(news.key));
    const told = [...found, ...shares.map(({ news }) => news)];
    this._told.add(told.map(news => news.key));
    this._isFirst = false;
    return [...fresh, ...shares.map(({ news }) => news)];
  }

  /** Those that waited when last looked at, and do not now. A page that was loaded meanwhile counts from then. */
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
  private _isFirst: boolean;
  private _waiting: ReadonlyMap<string, number> = new Map();
}

/** All that a status tells of this user's own kernels, said before or not. */
export function newsOf(status: IStatus): News[] {
  const news: News[] = [];
  for (const kernel of mine(status)) {
    const { termination, last_crash, scheduled_termination: soon } = kernel;
    // Who may stop the server knows that kernels ended with it.
    if (termination && termination.by !== status.user.name && !(termination.reason === 'stopped' && status.user.role === 'admin')) {
      news.push({ kind: 'ended', key: `ended ${kernel.id} ${termination.at}`, kernel, termination });
    }
    if (last_crash) {
      news.push({ kind: 'restarted', key: `restarted ${kernel.id} ${last_crash.at}`, kernel, termination: last_crash });
    }
    if (soon) {
      news.push({ kind: 'soon', key: `soon ${kernel.id} ${soon.at}`, kernel, soon });
    }
    const needed = kernel.required_bytes ?? 0;
    if (needed > kernel.memory_limit_bytes && kernel.memory_limit_bytes > 0 && kernel.state !== 'ended') {
      const key = `short ${kernel.id} ${kernel.memory_limit_bytes} ${kernel.last_failed_allocation_at ?? ''}`;
      news.push({ kind: 'short', key, kernel, needed });
    }
  }
  return news;
}

function mine(status: IStatus): readonly IKernel[] {
  return status.kernels.filter(kernel => kernel.owner === status.user.name);
}

/** For room, to start or to come back; a copy that is under way is no wait. */
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
