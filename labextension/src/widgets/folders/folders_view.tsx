// Folders that other users share with the user, and those that the user shares. Each change takes
// effect in kernels that start after it.

import * as React from 'react';

import { formatTime } from '../../base/quantities';
import { grouped, IFolderSource } from '../../folders/folder_source';
import { IInvitation, IInvitations, IInvitationWish, ITranslation } from '../../tokens';
import { Table } from '../elements/table';
import { InviteForm } from './invite_form';

export interface IFoldersOptions {
  source: IFolderSource;
  trans: ITranslation;
  /** Called after the user accepted or declined an invitation: its notification may go. */
  onAnswered: () => void;
}

interface IFoldersViewProps extends IFoldersOptions {
  /** The page reads the invitations again when this changes. */
  visits: number;
}

export function FoldersView({ source, trans, onAnswered, visits }: IFoldersViewProps): JSX.Element {
  const [answer, setAnswer] = React.useState<IInvitations | null>(null);
  const [said, setSaid] = React.useState('');
  const [failure, setFailure] = React.useState('');
  const [isUnderWay, setUnderWay] = React.useState(false);
  const top = React.useRef<HTMLHeadingElement>(null);
  const attempt = async (work: () => Promise<void>, done: string): Promise<boolean> => {
    setUnderWay(true);
    setFailure('');
    setSaid('');
    try {
      await work();
      setAnswer(await source.invitations());
      setSaid(done);
      return true;
    } catch (error) {
      setFailure(error instanceof Error && error.message ? error.message : trans.__('The server refused and gave no reason.'));
      return false;
    } finally {
      setUnderWay(false);
    }
  };
  React.useEffect(() => void attempt(() => Promise.resolve(), ''), [source, visits]);
  const act = async (work: () => Promise<void>, done: string): Promise<void> => {
    if (!isUnderWay && (await attempt(work, done))) {
      top.current?.focus(); // the pressed button may be gone
    }
  };
  const { forMe, given, isAdministrators } = grouped(answer?.invitations ?? []);
  const end = ({ id, name, invited }: IInvitation): void =>
    void act(() => source.endInvitation(id), trans.__('%1 is no longer shared with %2. Kernels that run keep it.', name, invited));
  const reply = ({ id, owner, name }: IInvitation, isAccepted: boolean): void =>
    void act(
      () => source.answerInvitation(id, isAccepted ? 'accept' : 'decline').then(onAnswered),
      isAccepted
        ? trans.__('Kernels that you start from now on have %1 of %2.', name, owner)
        : trans.__('Kernels that you start from now on do not have %1 of %2.', name, owner)
    );
  const invite = (wish: IInvitationWish): Promise<boolean> =>
    attempt(() => source.invite(wish), trans.__('%1 is invited to %2.', wish.invited, wish.path));
  return (
    <div className="aliquot-Admin-panel">
      <h2 ref={top} tabIndex={-1}>
        {trans.__('Shared folders')}
      </h2>
      <p className="aliquot-Admin-note">
        {trans.__('Kernels in containers have these folders; kernels that run as processes have the files of their account.')}
      </p>
      {failure && (
        <p className="aliquot-Admin-note" role="alert">
          {answer === null ? trans.__('The shared folders could not be read: %1', failure) : failure}
        </p>
      )}
      {failure && answer === null && (
        <button type="button" aria-disabled={isUnderWay} onClick={() => void act(() => Promise.resolve(), '')}>
          {trans.__('Try Again')}
        </button>
      )}
      <p className="aliquot-Admin-done" role="status">
        {said}
      </p>
      {answer && <ForMe invitations={forMe} trans={trans} isUnderWay={isUnderWay} reply={reply} />}
      {answer && <Given {...{ trans, isUnderWay, isAdministrators, end }} invitations={given} />}
      {answer?.refusal && <p className="aliquot-Admin-note">{answer.refusal}</p>}
      {answer && answer.refusal === null && <InviteForm trans={trans} isUnderWay={isUnderWay} invite={invite} />}
    </div>
  );
}

interface IForMeProps {
  invitations: readonly IInvitation[];
  trans: ITranslation;
  isUnderWay: boolean;
  reply: (invitation: IInvitation, isAccepted: boolean) => void;
}

function ForMe({ invitations, trans, isUnderWay, reply }: IForMeProps): JSX.Element {
  const button = (invitation: IInvitation, isAccepted: boolean): JSX.Element => (
    <button
      type="button"
      aria-disabled={isUnderWay}
      aria-label={
        isAccepted
          ? trans.__('Accept %1 of %2', invitation.name, invitation.owner)
          : trans.__('Decline %1 of %2', invitation.name, invitation.owner)
      }
      onClick={() => isUnderWay || reply(invitation, isAccepted)}
    >
      {isAccepted ? trans.__('Accept') : trans.__('Decline')}
    </button>
  );
  return (
    <>
      <h3>{trans.__('Shared with me')}</h3>
      <Table
        label={trans.__('Shared with me')}
        empty={trans.__('No user shares a folder with you.')}
        columns={[
          { title: trans.__('Folder'), isText: true },
          { title: trans.__('From'), isText: true },
          { title: trans.__('Access'), isText: true },
          { title: trans.__('In kernels at'), isText: true },
          { title: trans.__('Until'), isText: true },
          { title: trans.__('State'), isText: true },
          { title: trans.__('Actions'), isText: true }
        ]}
        rows={invitations.map(one => ({
          key: one.id,
          cells: [
            one.name,
            one.owner,
            accessText(one.access, trans),
            one.target,
            untilText(one, trans),
            stateText(one, trans),
            <span className="aliquot-Folders-actions">
              {one.answer !== 'accepted' && button(one, true)}
              {one.answer !== 'declined' && button(one, false)}
            </span>
          ]
        }))}
      />
    </>
  );
}

interface IGivenProps {
  invitations: readonly IInvitation[];
  trans: ITranslation;
  isUnderWay: boolean;
  isAdministrators: boolean;
  end: (invitation: IInvitation) => void;
}

function Given({ invitations, trans, isUnderWay, isAdministrators, end }: IGivenProps): JSX.Element {
  const title = isAdministrators ? trans.__('Shared by all users') : trans.__('Shared by me');
  return (
    <>
      <h3>{title}</h3>
      <Table
        label={title}
        empty={trans.__('You share no folder.')}
        columns={[
          { title: trans.__('Folder'), isText: true },
          { title: trans.__('Owner'), isText: true },
          { title: trans.__('With'), isText: true },
          { title: trans.__('Access'), isText: true },
          { title: trans.__('Until'), isText: true },
          { title: trans.__('Accepted by'), isText: true },
          { title: trans.__('Actions'), isText: true }
        ]}
        rows={invitations.map(one => ({
          key: one.id,
          cells: [
            <>
              {one.name} ({one.path})
              {one.problem && <span className="aliquot-Folders-problem">{one.problem}</span>}
            </>,
            one.owner,
            one.kind === 'team' ? trans.__('team %1', one.invited) : one.invited,
            accessText(one.access, trans),
            untilText(one, trans),
            (one.accepted ?? []).join(', ') || trans.__('no user yet'),
            <button
              type="button"
              aria-disabled={isUnderWay}
              aria-label={trans.__('Stop sharing %1 of %2 with %3', one.name, one.owner, one.invited)}
              onClick={() => isUnderWay || end(one)}
            >
              {trans.__('Stop Sharing')}
            </button>
          ]
        }))}
      />
    </>
  );
}

function accessText(access: IInvitation['access'], trans: ITranslation): string {
  return access === 'write' ? trans.__('read and write') : trans.__('read');
}

function untilText({ until, owner }: IInvitation, trans: ITranslation): string {
  return until === null ? trans.__('%1 stops sharing it', owner) : formatTime(until, new Date());
}

function stateText({ answer, problem }: IInvitation, trans: ITranslation): string {
  if (problem !== null) {
    return problem;
  }
  switch (answer) {
    case 'accepted':
      return trans.__('accepted');
    case 'declined':
      return trans.__('declined');
    default:
      return trans.__('waits for your answer');
  }
}
