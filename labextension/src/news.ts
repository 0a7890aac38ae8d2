// What a user is told of their kernels without having asked: each thing once, also over reloads of the page. No DOM.

import { IEnding, IEndingSoon, IKernel, IMemory, IStatus } from './tokens';

/** Something that happened, or will, to a kernel of this user. */
export type News =
  | { readonly kind: 'ended'; readonly key: string; readonly kernel: IKernel; readonly ending: IEnding }
  | { readonly kind: 'restarted'; readonly key: string; readonly kernel: IKernel; readonly ending: IEnding }
  | { readonly kind: 'soon'; readonly key: string; readonly kernel: IKernel; readonly soon: IEndingSoon };

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
      this._texts = new Set([...this._texts, ...fresh].slice(-REMEMBERED));
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

  read(status: IStatus): News[] {
    const found = newsOf(status);
    const fresh = found.filter(news => !this._told.has(news.key) && (news.kind === 'soon' || !this._isFirst));
    this._told.add(found.map(news => news.key));
    this._isFirst = false;
    return fresh;
  }

  private readonly _told: Remembered;
  private _isFirst: boolean;
}

/** All that a status tells of this user's own kernels, said before or not. */
export function newsOf(status: IStatus): News[] {
  const news: News[] = [];
  for (const kernel of status.kernels.filter(kernel => kernel.owner === status.user.name)) {
    const { ending, last_crash, ending_soon: soon } = kernel;
    // Who may stop the server knows that kernels ended with it.
    if (ending && ending.by !== status.user.name && !(ending.code === 'stopped' && status.user.role === 'admin')) {
      news.push({ kind: 'ended', key: `ended ${kernel.id} ${ending.at}`, kernel, ending });
    }
    if (last_crash) {
      news.push({ kind: 'restarted', key: `restarted ${kernel.id} ${last_crash.at}`, kernel, ending: last_crash });
    }
    if (soon) {
      news.push({ kind: 'soon', key: `soon ${kernel.id} ${soon.at}`, kernel, soon });
    }
  }
  return news;
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
