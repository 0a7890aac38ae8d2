// Tells of kernels that ended, or are about to, in Lab's own notifications. What is news, news.ts decides.

import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { GpuKernelsModel, kernelTitle } from '../model';
import { News, NewsReader, newsOf } from '../news';
import { formatTime } from '../quantities';

/** More at once, as after a night, are told in one sentence: the panel has each of them. */
const MOST_AT_ONCE = 3;

/** Asks the server to keep a kernel; tells why it does not. */
export function keepKernel(model: GpuKernelsModel, kernelId: string): void {
  model.keep(kernelId).catch(error => {
    Notification.error(error instanceof Error ? error.message : String(error), { autoClose: false });
  });
}

/** Follows the model until the page is left. */
export class Announcer {
  constructor(
    private readonly _model: GpuKernelsModel,
    private readonly _reader: NewsReader,
    private readonly _trans: TranslationBundle,
    private readonly _showPanel: () => void
  ) {
    _model.changed.connect(() => this._look());
  }

  /** Whether anything is told; while it is not, nothing counts as told. */
  isEnabled = false;

  private _look(): void {
    const { status } = this._model.state;
    if (status === null || !this.isEnabled) {
      return;
    }
    const fresh = this._reader.read(status);
    const ended = fresh.filter(news => news.kind === 'ended');
    const others = fresh.filter(news => news.kind !== 'ended');
    if (ended.length > MOST_AT_ONCE) {
      this._tellOfMany(ended.length);
    } else {
      ended.forEach(news => this._tell(news));
    }
    others.forEach(news => this._tell(news));
    this._takeBack(new Set(newsOf(status).map(news => news.key)));
  }

  private _tell(news: News): void {
    const title = kernelTitle(news.kernel);
    if (news.kind === 'soon') {
      const at = formatTime(news.soon.at, new Date());
      const message = this._trans.__('%1 will be ended at %2: %3', title, at, news.soon.reason);
      const keep = { label: this._trans.__('Keep it'), callback: () => keepKernel(this._model, news.kernel.id) };
      const actions = news.soon.can_keep ? [keep] : [];
      this._standing.set(news.key, Notification.warning(message, { autoClose: false, actions }));
    } else if (news.kind === 'restarted') {
      const message = this._trans.__('%1 was started again, without its variables: %2', title, news.ending.message);
      Notification.warning(message, { autoClose: false });
    } else {
      Notification.warning(`${title}: ${news.ending.message}`, { autoClose: false, actions: [this._toPanel()] });
    }
  }

  private _tellOfMany(count: number): void {
    const message = this._trans.__('%1 of your kernels ended.', String(count));
    Notification.warning(message, { autoClose: false, actions: [this._toPanel()] });
  }

  /** An announcement that does not hold any more. */
  private _takeBack(present: ReadonlySet<string>): void {
    for (const [key, id] of [...this._standing].filter(([key]) => !present.has(key))) {
      Notification.dismiss(id);
      this._standing.delete(key);
    }
  }

  private _toPanel(): Notification.IAction {
    return { label: this._trans.__('Show GPU kernels'), callback: () => this._showPanel() };
  }

  private readonly _standing = new Map<string, string>();
}
