// Shows invitations to other users' folders as Lab's notifications: each once, also across reloads
// of the page. A notification goes once its invitation is answered or has ended.

import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { GpuKernelsModel } from '../../model/model';
import { Remembered } from '../../model/news';
import { IOpenInvitation } from '../../tokens';

/** More invitations at once become one notification; the page of shared folders lists each. */
const MOST_AT_ONCE = 3;

/** Follows the model for the life of the page. */
export class InvitationAnnouncer {
  constructor(private readonly _options: InvitationAnnouncer.IOptions) {
    _options.model.changed.connect(() => this._look());
  }

  /** Whether notifications are on; while they are off, no invitation counts as shown. */
  isEnabled = false;

  private _look(): void {
    const { model, told } = this._options;
    const { status } = model.state;
    if (status === null || !this.isEnabled) {
      return;
    }
    const open = status.user.invitations ?? []; // an older gateway has none
    const fresh = open.filter(one => !told.has(keyOf(one)));
    if (fresh.length > MOST_AT_ONCE) {
      this._show(this._options.trans.__('%1 folders are shared with you.', String(fresh.length)), fresh);
    } else {
      fresh.forEach(one => this._show(this._text(one), [one]));
    }
    told.add(fresh.map(keyOf));
    this._takeBack(new Set(open.map(keyOf)));
  }

  private _text({ owner, name, access }: IOpenInvitation): string {
    const { trans } = this._options;
    return access === 'write'
      ? trans.__('%1 shares the folder %2 with you, to read and write.', owner, name)
      : trans.__('%1 shares the folder %2 with you, to read.', owner, name);
  }

  private _show(message: string, invitations: readonly IOpenInvitation[]): void {
    const { trans, showFolders } = this._options;
    const actions = [{ label: trans.__('Show shared folders'), callback: () => showFolders() }];
    this._standing.set(Notification.info(message, { autoClose: false, actions }), invitations.map(keyOf));
  }

  private _takeBack(open: ReadonlySet<string>): void {
    for (const [id, keys] of [...this._standing]) {
      if (!keys.some(key => open.has(key))) {
        Notification.dismiss(id);
        this._standing.delete(id);
      }
    }
  }

  private readonly _standing = new Map<string, readonly string[]>();
}

export namespace InvitationAnnouncer {
  export interface IOptions {
    readonly model: GpuKernelsModel;
    readonly trans: TranslationBundle;
    /** The invitations that were shown in this browser. */
    readonly told: Remembered;
    readonly showFolders: () => void;
  }
}

/** An owner who invites anew, to another folder perhaps, is told again. */
function keyOf({ id, since }: IOpenInvitation): string {
  return `${id} ${since}`;
}
