// The form that invites a user or team to a folder.

import * as React from 'react';

import { wishOf } from '../../folders/folder_source';
import { IInvitationWish, ITranslation } from '../../tokens';

interface IInviteFormProps {
  trans: ITranslation;
  isUnderWay: boolean;
  /** Return whether the request succeeded. */
  invite: (wish: IInvitationWish) => Promise<boolean>;
}

const EMPTY: IInvitationWish = { path: '', kind: 'user', invited: '', access: 'read', until: '' };

export function InviteForm({ trans, isUnderWay, invite }: IInviteFormProps): JSX.Element {
  const [draft, setDraft] = React.useState(EMPTY);
  const first = React.useRef<HTMLInputElement>(null);
  const wish = wishOf(draft);
  const submit = async (event: React.FormEvent): Promise<void> => {
    event.preventDefault();
    if (wish !== null && !isUnderWay && (await invite(wish))) {
      setDraft({ ...EMPTY, path: draft.path });
      first.current?.focus();
    }
  };
  return (
    <form aria-label={trans.__('Share a folder')} onSubmit={event => void submit(event)}>
      <h3>{trans.__('Share a folder')}</h3>
      <div className="aliquot-Admin-controls">
        <label>
          {trans.__('Folder, as your kernels see it')}{' '}
          <input
            ref={first}
            type="text"
            required
            autoComplete="off"
            spellCheck={false}
            placeholder="~/project"
            value={draft.path}
            onChange={event => setDraft({ ...draft, path: event.target.value })}
          />
        </label>
        <label>
          {trans.__('With')}{' '}
          <select
            value={draft.kind}
            onChange={event => setDraft({ ...draft, kind: event.target.value as IInvitationWish['kind'] })}
          >
            <option value="user">{trans.__('a user')}</option>
            <option value="team">{trans.__('a team')}</option>
          </select>
        </label>
        <label>
          {draft.kind === 'user' ? trans.__('Name of the user') : trans.__('Name of the team')}{' '}
          <input
            type="text"
            required
            autoComplete="off"
            spellCheck={false}
            value={draft.invited}
            onChange={event => setDraft({ ...draft, invited: event.target.value })}
          />
        </label>
        <label>
          {trans.__('Access')}{' '}
          <select
            value={draft.access}
            onChange={event => setDraft({ ...draft, access: event.target.value as IInvitationWish['access'] })}
          >
            <option value="read">{trans.__('read')}</option>
            <option value="write">{trans.__('read and write')}</option>
          </select>
        </label>
        <label>
          {trans.__('Until (optional)')}{' '}
          <input
            type="datetime-local"
            value={draft.until}
            onChange={event => setDraft({ ...draft, until: event.target.value })}
          />
        </label>
        <button type="submit" aria-disabled={wish === null || isUnderWay}>
          {trans.__('Share')}
        </button>
      </div>
    </form>
  );
}
