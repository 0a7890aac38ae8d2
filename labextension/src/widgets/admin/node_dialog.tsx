// The actions of an administrator on one node. Each is described, and asks for confirmation.

import * as React from 'react';

import { IAdminSource } from '../../admin/admin_source';
import { CordonAct, INodeRow, NodeAct } from '../../admin/node_rows';
import { INodeSchedule, ITranslation } from '../../tokens';
import { ActionDialog, Confirmation, failureText, IOutcome } from './action_dialog';

/** The gateway takes no longer one. */
const LONGEST_REASON = 200;

interface INodeDialogProps {
  node: INodeRow;
  act: CordonAct;
  source: IAdminSource;
  trans: ITranslation;
  /** Called when the dialog closes, and when the outcome of its action is known. */
  onClose: (outcome: IOutcome | null) => void;
}

export function NodeDialog({ node, act, source, trans, onClose }: INodeDialogProps): JSX.Element {
  const [reason, setReason] = React.useState(node.cordon?.reason ?? '');
  const [isBusy, setBusy] = React.useState(false);
  const send = async (): Promise<string> => doneText(act, await request(act, node.name, reason, source), trans);
  return (
    <ActionDialog title={node.name} isBusy={isBusy} onClose={() => onClose(null)}>
      {close => (
        <Confirmation
          {...{ act, isBusy, setBusy, send }}
          question={questionText(act, trans)}
          confirm={confirmText(act, trans)}
          back={trans.__('Cancel')}
          fields={act === 'uncordon' ? null : <ReasonField text={reason} onChange={setReason} trans={trans} />}
          failedText={message => failureText(node.name, message, trans)}
          onBack={close}
          onOutcome={onClose}
        />
      )}
    </ActionDialog>
  );
}

interface IReasonFieldProps {
  text: string;
  onChange: (text: string) => void;
  trans: ITranslation;
}

function ReasonField({ text, onChange, trans }: IReasonFieldProps): JSX.Element {
  return (
    <div className="aliquot-Admin-fields">
      <label>
        {trans.__('Reason')}
        <input
          type="text"
          autoFocus
          maxLength={LONGEST_REASON}
          placeholder={trans.__('for all users, such as: new driver')}
          value={text}
          onChange={event => onChange(event.target.value)}
        />
      </label>
    </div>
  );
}

function request(act: CordonAct, node: string, reason: string, source: IAdminSource): Promise<INodeSchedule> {
  return act === 'uncordon' ? source.uncordon(node) : source[act](node, reason.trim());
}

export function nodeActText(act: NodeAct, trans: ITranslation): string {
  switch (act) {
    case 'cordon':
      return trans.__('Cordon…');
    case 'drain':
      return trans.__('Drain…');
    case 'uncordon':
      return trans.__('Uncordon…');
    case 'moves':
      return trans.__('Make Room…');
  }
}

/** The same with the node, for readers who do not see the row. */
export function nodeActName(act: NodeAct, node: string, trans: ITranslation): string {
  switch (act) {
    case 'cordon':
      return trans.__('Cordon… %1', node);
    case 'drain':
      return trans.__('Drain… %1', node);
    case 'uncordon':
      return trans.__('Uncordon… %1', node);
    case 'moves':
      return trans.__('Make Room… %1', node);
  }
}

function confirmText(act: CordonAct, trans: ITranslation): string {
  switch (act) {
    case 'cordon':
      return trans.__('Cordon');
    case 'drain':
      return trans.__('Drain');
    case 'uncordon':
      return trans.__('Uncordon');
  }
}

function questionText(act: CordonAct, trans: ITranslation): string {
  switch (act) {
    case 'cordon':
      return trans.__('Let nothing new start on this node? Its kernels run on.');
    case 'drain':
      return trans.__('Let nothing new start on this node, and swap its kernels out? No kernel ends.');
    case 'uncordon':
      return trans.__('Let kernels start on this node again, and return to it?');
  }
}

function doneText(act: CordonAct, { name, kernels }: INodeSchedule, trans: ITranslation): string {
  const staying = kernels.filter(kernel => kernel.state === 'stays').length;
  switch (act) {
    case 'cordon':
      return trans.__('%1 is cordoned.', name);
    case 'drain':
      return staying === 0
        ? trans.__('%1 is being drained.', name)
        : trans.__('%1 is being drained. Kernels that stay: %2.', name, String(staying));
    case 'uncordon':
      return trans.__('%1 is uncordoned.', name);
  }
}
