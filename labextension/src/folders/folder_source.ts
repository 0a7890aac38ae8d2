// The requests of the page of shared folders, and the invitations in the groups that it shows. No DOM.

import { IInvitation, IInvitations, IInvitationWish } from '../tokens';

/** Each request rejects with an Error whose message is the server's, or says why none came. */
export interface IFolderSource {
  invitations(): Promise<IInvitations>;
  invite(wish: IInvitationWish): Promise<void>;
  endInvitation(id: string): Promise<void>;
  answerInvitation(id: string, answer: 'accept' | 'decline'): Promise<void>;
}

export interface IGroups {
  /** For the user, unanswered ones first. */
  readonly forMe: readonly IInvitation[];
  /** The user's own; an administrator has those of all users. */
  readonly given: readonly IInvitation[];
  /** Whether the user sees the invitations of all users. */
  readonly isAdministrators: boolean;
}

export function grouped(invitations: readonly IInvitation[]): IGroups {
  const forMe = invitations.filter(({ answer }) => answer !== null);
  const isOpen = ({ answer }: IInvitation): number => (answer === 'none' ? 0 : 1);
  return {
    forMe: [...forMe].sort((one, other) => isOpen(one) - isOpen(other)),
    given: invitations.filter(({ path }) => path !== null),
    isAdministrators: invitations.some(({ source }) => source !== null)
  };
}

/** Return the request of a form's fields; null while one is missing. `until` is local time, or empty. */
export function wishOf(fields: IInvitationWish): IInvitationWish | null {
  const path = fields.path.trim();
  const invited = fields.invited.trim();
  const end = new Date(fields.until);
  if (path === '' || invited === '' || (fields.until !== '' && Number.isNaN(end.getTime()))) {
    return null;
  }
  return { ...fields, path, invited, until: fields.until === '' ? '' : end.toISOString() };
}
