// Shows news about kernels as Lab's notifications, with actions. model/news.ts decides what is
// news.

import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { suffices } from '../../model/kernel_access';
import { GpuKernelsModel, kernelTitle } from '../../model/model';
import { News, NewsReader } from '../../model/news';
import { formatTime } from '../../base/quantities';
import { IKernel, IKernelEvent, IStatus } from '../../tokens';
import { sizeText } from '../kernels/kernel_words';

/** More news of one kind at once become one notification; the panel lists each. */
const MOST_AT_ONCE = 3;
/** The least time between two notifications about evicted memory of one kernel. */
const RECLAIM_PAUSE_MS = 600000;
/** The time after which good news closes by itself. */
const SERVED_MS = 20000;
/** Lab cuts a notification off after so many letters. */
const LONGEST_SHOWN = 140;

/** The text and the actions of one notification. */
export interface IAnnouncement {
  readonly text: string;
  readonly actions: readonly Notification.IAction[];
}

/** Ask the server to postpone a kernel's end; show its refusal. */
export function keepKernel(model: GpuKernelsModel, kernelId: string): void {
  model.postponeCulling(kernelId).catch(tellFailure);
}

/** Show the failure of an action that the user started in a notification. */
export function tellFailure(error: unknown): void {
  Notification.error(error instanceof Error ? error.message : String(error), { autoClose: false });
}

/** Follows the model for the life of the page. */
export class Announcer {
  constructor(private readonly _options: Announcer.IOptions) {
    const { model } = _options;
    model.changed.connect(() => this._look());
    model.happened.connect((_, event) => this._hear(event));
  }

  /** Whether notifications are on; while they are off, no news counts as shown. */
  isEnabled = false;

  /** Called when the current widget changes: dismiss good news about the notebook in front. */
  see(): void {
    for (const [id, kernel] of [...this._served]) {
      if (this._options.isShown(kernel)) {
        Notification.dismiss(id);
        this._served.delete(id);
      }
    }
  }

  private _look(): void {
    const { model, reader, isShown } = this._options;
    const { status } = model.state;
    if (status === null || !this.isEnabled) {
      return;
    }
    const fresh = reader.read(status, new Date()).filter(news => news.kind !== 'served' || !isShown(news.kernel));
    for (const kind of new Set(fresh.map(news => news.kind))) {
      const alike = fresh.filter(news => news.kind === kind);
      if (alike.length > MOST_AT_ONCE) {
        this._tellOfMany(kind, alike);
      } else {
        alike.forEach(news => this._tell(news, status));
      }
    }
    this._takeBack(reader.standing(status));
  }

  private _tell(news: News, status: IStatus): void {
    const { trans, model } = this._options;
    const title = kernelTitle(news.kernel);
    if (news.kind === 'soon') {
      const at = formatTime(news.soon.at, new Date());
      const keep: Notification.IAction = {
        label: trans.__('Keep Running'),
        displayType: 'accent',
        callback: () => keepKernel(model, news.kernel.id)
      };
      const message = trans.__('%1 will be ended at %2: %3', title, at, news.soon.message);
      this._warn(message, news.soon.can_postpone ? [keep] : [], [news]);
    } else if (news.kind === 'restarted') {
      const message = trans.__('%1 restarted; its variables were lost: %2', title, news.termination.message);
      Notification.warning(message, { autoClose: false });
    } else if (news.kind === 'served') {
      const message = trans.__('%1 has its GPU now.', title);
      const options = { autoClose: SERVED_MS, actions: this._toNotebook(news.kernel) };
      this._served.set(Notification.success(message, options), news.kernel);
    } else if (news.kind === 'resized') {
      const message = trans.__('%1 has %2 now.', title, sizeText(news.kernel, trans));
      Notification.success(message, { autoClose: SERVED_MS, actions: this._toNotebook(news.kernel) });
    } else if (news.kind === 'shared') {
      this._tellOfShare(news.kernel, this._ofShare(news.kernel), this._toShared(news.kernel));
    } else if (news.kind === 'message') {
      this._tellMessage(news);
    } else if (news.kind === 'unshared') {
      const message = trans.__('%1 of %2 is not shared with you any more, or has ended.', title, news.kernel.owner);
      this._tellOfShare(news.kernel, message, []);
    } else {
      void this._tellOfMemory(news, status);
    }
  }

  /** Show an administrator's message; one that a notification would cut off in a dialog, too. */
  private _tellMessage({ kernel, message: { by, text } }: News & { kind: 'message' }): void {
    const { trans } = this._options;
    const whole = trans.__('%1 about %2: %3', by, kernelTitle(kernel), text);
    const title = trans.__('Message of %1', by);
    const read = {
      label: trans.__('Read it whole'),
      callback: () => void showDialog({ title, body: whole, buttons: [Dialog.okButton()] })
    };
    Notification.info(whole, { autoClose: false, actions: whole.length > LONGEST_SHOWN ? [read] : [] });
  }

  /** Notify about a termination or a failed allocation, with a larger size if one helps. */
  private async _tellOfMemory(news: News & { kind: 'ended' | 'short' }, status: IStatus): Promise<void> {
    const { text, actions } = await this._options.describe(news, status);
    if (news.kind === 'ended') {
      Notification.warning(text, { autoClose: false, actions: [...actions, this._toPanel()] });
    } else {
      this._warn(text, actions, [news]);
    }
  }

  /** Show a warning until the user dismisses it or it does not hold any more. */
  private _warn(message: string, actions: readonly Notification.IAction[], all: readonly News[]): void {
    const id = Notification.warning(message, { autoClose: false, actions: [...actions] });
    this._standing.set(id, all.map(news => news.key));
  }

  private _tellOfMany(kind: News['kind'], all: readonly News[]): void {
    const message = this._ofMany(kind, String(all.length));
    if (kind === 'soon' || kind === 'short') {
      this._warn(message, [this._toPanel()], all);
    } else {
      const isGood = kind === 'served' || kind === 'resized';
      const options = { autoClose: isGood ? SERVED_MS : false, actions: [this._toPanel()] } as const;
      const look = isGood ? 'success' : ['shared', 'unshared', 'message'].includes(kind) ? 'info' : 'warning';
      Notification.emit(message, look, { ...options, actions: [...options.actions] });
    }
  }

  private _ofMany(kind: News['kind'], count: string): string {
    const { trans } = this._options;
    switch (kind) {
      case 'ended':
        return trans.__('%1 of your kernels ended.', count);
      case 'restarted':
        return trans.__('%1 of your kernels restarted; their variables were lost.', count);
      case 'soon':
        return trans.__('%1 of your kernels will be ended soon.', count);
      case 'short':
        return trans.__('%1 of your kernels ran out of their GPU memory.', count);
      case 'message':
        return trans.__('Administrators wrote to you about %1 of your kernels.', count);
      case 'shared':
        return trans.__('%1 kernels are shared with you.', count);
      case 'unshared':
        return trans.__('%1 kernels are not shared with you any more, or have ended.', count);
      case 'resized':
        return trans.__('%1 of your kernels have their new size now.', count);
      case 'served':
        return trans.__('%1 of your kernels have their GPU now.', count);
    }
  }

  /**
   * Notify about memory evicted from the user's kernel, unless it is routine on a shared device.
   */
  private _hear(event: IKernelEvent): void {
    const { model, trans } = this._options;
    const kernel = model.kernel(event.kernel_id);
    const now = Date.now();
    const isSoon = now - (this._reclaimed.get(event.kernel_id) ?? -Infinity) < RECLAIM_PAUSE_MS;
    const isMine = event.owner === model.state.status?.user.name;
    const taken = event.kind === 'evicted' ? event.evicted : null;
    if (!this.isEnabled || !taken || taken.is_quiet || kernel === null || !isMine || isSoon) {
      return;
    }
    this._reclaimed.set(event.kernel_id, now);
    const why = event.reason ?? trans.__('another kernel needs it.');
    const message =
      taken.code === 'resized'
        ? trans.__('%1 has another size: %2', kernelTitle(kernel), why)
        : trans.__('GPU memory of %1 was taken back: %2', kernelTitle(kernel), why);
    Notification.info(message, { autoClose: 10000, actions: [this._toPanel()] });
  }

  /** Dismiss notifications that do not hold any more. */
  private _takeBack(present: ReadonlySet<string>): void {
    for (const [id, keys] of [...this._standing]) {
      if (!keys.some(key => present.has(key))) {
        Notification.dismiss(id);
        this._standing.delete(id);
      }
    }
  }

  private _toPanel(): Notification.IAction {
    return { label: this._options.trans.__('Show GPU kernels'), callback: () => this._options.showPanel() };
  }

  /** Replace the last notification about this kernel. */
  private _tellOfShare({ id }: IKernel, message: string, actions: Notification.IAction[]): void {
    Notification.dismiss(this._shares.get(id) ?? 'none');
    this._shares.set(id, Notification.info(message, { autoClose: false, actions }));
  }

  private _ofShare(kernel: IKernel): string {
    const { trans } = this._options;
    const title = kernelTitle(kernel);
    return suffices(kernel, 'write')
      ? trans.__('%1 shares %2 with you: you can run cells in it.', kernel.owner, title)
      : trans.__('%1 shares %2 with you, read-only.', kernel.owner, title);
  }

  private _toShared(kernel: IKernel): Notification.IAction[] {
    const { trans, openNotebookOn } = this._options;
    const open = { label: trans.__('Open a notebook on it'), callback: () => openNotebookOn(kernel) };
    return [...(suffices(kernel, 'write') ? [open] : []), this._toPanel()];
  }

  private _toNotebook(kernel: IKernel): Notification.IAction[] {
    const { trans, open } = this._options;
    return open(kernel) ? [{ label: trans.__('Open its notebook'), callback: () => open(kernel)?.() }] : [];
  }

  /** Notifications about one kernel each. */
  private readonly _served = new Map<string, IKernel>();
  private readonly _standing = new Map<string, readonly string[]>();
  /** The last notification about each kernel of other users. */
  private readonly _shares = new Map<string, string>();
  private readonly _reclaimed = new Map<string, number>();
}

export namespace Announcer {
  export interface IOptions {
    readonly model: GpuKernelsModel;
    readonly reader: NewsReader;
    readonly trans: TranslationBundle;
    readonly showPanel: () => void;
    /** Return the action that opens the kernel's notebook; null if this user has none. */
    readonly open: (kernel: IKernel) => (() => void) | null;
    /** Open a new notebook on a shared kernel. */
    readonly openNotebookOn: (kernel: IKernel) => void;
    /** Whether this kernel's notebook is in front. */
    readonly isShown: (kernel: IKernel) => boolean;
    /** Return the notification about a failed allocation or a termination. Never rejects. */
    readonly describe: (news: News & { kind: 'ended' | 'short' }, status: IStatus) => Promise<IAnnouncement>;
  }
}
