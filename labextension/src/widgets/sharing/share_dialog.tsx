// The dialog that shares a kernel with users and teams, and removes shares. Each change takes
// effect at once; the server decides which principals are allowed.

import { Dialog } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { Button } from '@jupyterlab/ui-components';
import * as React from 'react';

import { AliquotClient } from '../../client/client';
import { inOrder, shareOf } from '../../model/kernel_access';
import { GpuKernelsModel, kernelTitle } from '../../model/model';
import { IKernel, IShare } from '../../tokens';
import { failureText } from '../elements/action_words';
import { accessName, shareName } from './share_words';

export interface IShareDialogOptions {
  readonly kernel: IKernel;
  readonly client: AliquotClient;
  readonly model: GpuKernelsModel;
  readonly trans: TranslationBundle;
}

/** Show the dialog; resolves when it is closed. */
export async function showShareDialog(options: IShareDialogOptions): Promise<void> {
  const { kernel, trans } = options;
  const dialog = new FormDialog({
    title: trans.__('Share %1', kernelTitle(kernel)),
    body: <ShareBody {...options} />,
    buttons: [Dialog.okButton({ label: trans.__('Close') })],
    focusNodeSelector: '.aliquot-Share input[type="text"]'
  });
  dialog.addClass('aliquot-ShareDialog');
  await dialog.launch();
}

/** Lab's dialogs close at Enter in a field; here it sends the form. */
class FormDialog extends Dialog<void> {
  override handleEvent(event: Event): void {
    const isSent = event instanceof KeyboardEvent && event.type === 'keydown' && event.key === 'Enter';
    const { target } = event;
    if (!(isSent && target instanceof Element && target.closest('form'))) {
      super.handleEvent(event);
    }
  }
}

const NEW_SHARE: IShare = { kind: 'user', name: '', access: 'read' };

function ShareBody(options: IShareDialogOptions): JSX.Element {
  const { kernel, client, model, trans } = options;
  const [shares, setShares] = React.useState<readonly IShare[] | null>(null);
  const [said, setSaid] = React.useState('');
  const [failure, setFailure] = React.useState('');
  const [isUnderWay, setUnderWay] = React.useState(false);
  const isMine = kernel.owner === model.state.status?.user.name;
  const list = React.useRef<HTMLHeadingElement>(null);
  const attempt = async (work: () => Promise<void>, done: string): Promise<boolean> => {
    setUnderWay(true);
    setFailure('');
    setSaid('');
    try {
      await work();
      setShares(await client.shares(kernel.id));
      setSaid(done);
      return true;
    } catch (error) {
      setFailure(failureText(error, trans));
      return false;
    } finally {
      setUnderWay(false);
      void model.refresh();
    }
  };
  React.useEffect(() => void attempt(() => Promise.resolve(), ''), [kernel.id]);
  const takeBack = async (share: IShare): Promise<void> => {
    if (await attempt(() => client.unshare(kernel.id, share), trans.__('No longer shared with %1.', shareName(share, trans)))) {
      list.current?.focus(); // the pressed button was removed
    }
  };
  const add = (share: IShare): Promise<boolean> =>
    attempt(
      () => client.share(kernel.id, share),
      trans.__('Shared with %1: %2.', shareName(share, trans), accessName(share.access, trans))
    );
  return (
    <div className="aliquot-Share">
      <ShareForm trans={trans} isUnderWay={isUnderWay} add={add} />
      {failure && (
        <p className="aliquot-Actions-failure" role="alert">
          {failure}
        </p>
      )}
      <p className="aliquot-Share-said" role="status">
        {said}
      </p>
      <h3 ref={list} tabIndex={-1} className="aliquot-Share-heading">
        {trans.__('Users and teams with access')}
      </h3>
      {shares && <ShareList {...{ shares, trans, isUnderWay, isMine }} takeBack={share => void takeBack(share)} />}
    </div>
  );
}

interface IShareFormProps {
  trans: TranslationBundle;
  isUnderWay: boolean;
  /** Return whether the request succeeded. */
  add: (share: IShare) => Promise<boolean>;
}

function ShareForm({ trans, isUnderWay, add }: IShareFormProps): JSX.Element {
  const [draft, setDraft] = React.useState<IShare>(NEW_SHARE);
  const field = React.useRef<HTMLInputElement>(null);
  const id = React.useId();
  const wanted = shareOf(draft);
  const submit = async (event: React.FormEvent): Promise<void> => {
    event.preventDefault();
    if (wanted !== null && !isUnderWay && (await add(wanted))) {
      // A disabled button would take the focus out of the dialog.
      field.current?.focus();
      setDraft({ ...draft, name: '' });
    }
  };
  return (
    <form className="aliquot-Share-form" aria-label={trans.__('Share with')} onSubmit={event => void submit(event)}>
      <Choice
        legend={trans.__('Share with')}
        options={[
          { value: 'user', text: trans.__('a user') },
          { value: 'team', text: trans.__('a team') }
        ]}
        chosen={draft.kind}
        choose={kind => setDraft({ ...draft, kind })}
      />
      <label htmlFor={id} className="jp-sr-only">
        {draft.kind === 'user' ? trans.__('Name of the user') : trans.__('Name of the team')}
      </label>
      <input
        ref={field}
        id={id}
        type="text"
        className="jp-mod-styled aliquot-Share-name"
        autoComplete="off"
        spellCheck={false}
        value={draft.name}
        onChange={event => setDraft({ ...draft, name: event.target.value })}
      />
      <Choice
        legend={trans.__('Access')}
        options={[
          { value: 'read', text: trans.__('read: see its status and the outputs of its cells') },
          { value: 'write', text: trans.__('write: also run cells, interrupt and restart') }
        ]}
        chosen={draft.access}
        choose={access => setDraft({ ...draft, access })}
      />
      <Button
        type="submit"
        small
        className="aliquot-Action aliquot-mod-main aliquot-Share-send"
        disabled={wanted === null}
        aria-disabled={wanted === null || isUnderWay}
      >
        {trans.__('Share')}
      </Button>
    </form>
  );
}

interface IChoiceProps<T extends string> {
  legend: string;
  options: readonly { readonly value: T; readonly text: string }[];
  chosen: T;
  choose: (value: T) => void;
}

function Choice<T extends string>({ legend, options, chosen, choose }: IChoiceProps<T>): JSX.Element {
  const name = React.useId();
  return (
    <fieldset className="aliquot-Resize-class aliquot-Share-choice">
      <legend>{legend}</legend>
      {options.map(({ value, text }) => (
        <label key={value} className="aliquot-Resize-choice">
          <input type="radio" name={name} checked={chosen === value} onChange={() => choose(value)} />
          {text}
        </label>
      ))}
    </fieldset>
  );
}

interface IShareListProps {
  shares: readonly IShare[];
  trans: TranslationBundle;
  isUnderWay: boolean;
  /** The owner, if an administrator shares another user's kernel. */
  isMine: boolean;
  takeBack: (share: IShare) => void;
}

function ShareList({ shares, trans, isUnderWay, isMine, takeBack }: IShareListProps): JSX.Element {
  if (shares.length === 0) {
    const onlyOwner = isMine
      ? trans.__('Only you and administrators.')
      : trans.__('Only its owner and administrators.');
    return <p className="aliquot-Share-unshared">{onlyOwner}</p>;
  }
  return (
    <ul className="aliquot-Share-list" aria-label={trans.__('Users and teams with access')}>
      {inOrder(shares).map(share => (
        <li key={`${share.kind} ${share.name}`}>
          <span className="aliquot-Share-who">{shareName(share, trans)}</span>
          <span className="aliquot-Share-may">{accessName(share.access, trans)}</span>
          <Button
            type="button"
            small
            className="aliquot-Action"
            aria-label={trans.__('Stop sharing with %1', shareName(share, trans))}
            aria-disabled={isUnderWay}
            onClick={() => isUnderWay || takeBack(share)}
          >
            {trans.__('Stop Sharing')}
          </Button>
        </li>
      ))}
    </ul>
  );
}
