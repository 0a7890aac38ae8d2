// The actions of an administrator on one kernel. Each is described, and asks for confirmation.

import * as React from 'react';

import { IAdminSource } from '../../admin/admin_source';
import { changesOf } from '../../admin/size_change';
import { IHolderKernel, ISizeRequest, ITranslation } from '../../tokens';
import { ActionDialog, Confirmation, failureText, IOutcome } from './action_dialog';
import { bytesText, idleText, nameText, sizeText, stateText } from './admin_words';
import { MessageField, SizeFields } from './kernel_fields';

type Act = 'swapOut' | 'restore' | 'resize' | 'message' | 'end';

interface IKernelDialogProps {
  kernel: IHolderKernel;
  source: IAdminSource;
  trans: ITranslation;
  /** Called when the dialog closes, and when the outcome of its action is known. */
  onClose: (outcome: IOutcome | null) => void;
}

export function KernelDialog({ kernel, source, trans, onClose }: IKernelDialogProps): JSX.Element {
  const [act, setAct] = React.useState<Act | null>(null);
  const [isBusy, setBusy] = React.useState(false);
  return (
    <ActionDialog title={nameText(kernel)} isBusy={isBusy} onClose={() => onClose(null)}>
      {close =>
        act === null ? (
          <Choice {...{ kernel, trans, setAct }} onClose={close} />
        ) : (
          <Step key={act} {...{ act, kernel, source, trans, isBusy, setBusy }} onBack={() => setAct(null)} onOutcome={onClose} />
        )
      }
    </ActionDialog>
  );
}

interface IChoiceProps {
  kernel: IHolderKernel;
  trans: ITranslation;
  setAct: (act: Act) => void;
  onClose: () => void;
}

function Choice({ kernel, trans, setAct, onClose }: IChoiceProps): JSX.Element {
  const isForeign = kernel.name === '';
  const runs = kernel.state !== 'queued' && kernel.state !== 'starting';
  const isOut = kernel.state === 'swapped_out' || kernel.state === 'checkpointed';
  return (
    <>
      <Facts kernel={kernel} trans={trans} />
      {isForeign && (
        <p className="aliquot-Admin-note">
          {trans.__('Another program started this kernel: it is ended there, and its owner has no notifications.')}
        </p>
      )}
      <div className="aliquot-Admin-actions">
        {isOut ? (
          <button type="button" autoFocus disabled={!runs} onClick={() => setAct('restore')}>
            {actText('restore', trans)}
          </button>
        ) : (
          <button type="button" autoFocus disabled={!runs} onClick={() => setAct('swapOut')}>
            {actText('swapOut', trans)}
          </button>
        )}
        {(['resize', 'message', 'end'] as const).map(act => (
          <button
            key={act}
            type="button"
            disabled={act === 'resize' ? !runs : isForeign}
            onClick={() => setAct(act)}
          >
            {actText(act, trans)}
          </button>
        ))}
        <button type="button" onClick={onClose}>
          {trans.__('Close')}
        </button>
      </div>
    </>
  );
}

function Facts({ kernel, trans }: { kernel: IHolderKernel; trans: ITranslation }): JSX.Element {
  const facts: readonly (readonly [string, string])[] = [
    [trans.__('Owner'), kernel.team === null ? kernel.owner : `${kernel.owner} (${kernel.team})`],
    [trans.__('GPUs'), sizeText(kernel, trans)],
    [trans.__('State'), kernel.reason ? `${stateText(kernel, trans)}: ${kernel.reason}` : stateText(kernel, trans)],
    [trans.__('GPU memory'), trans.__('%1 of %2', bytesText(kernel.used_bytes), bytesText(kernel.memory_limit_bytes))],
    [trans.__('RAM'), bytesText(kernel.host?.memory_bytes ?? null)],
    [trans.__('Idle for'), idleText(kernel.idle_seconds)],
    [trans.__('Kernel'), kernel.id]
  ];
  return (
    <dl className="aliquot-Admin-facts">
      {facts.map(([name, text]) => (
        <React.Fragment key={name}>
          <dt>{name}</dt>
          <dd>{text}</dd>
        </React.Fragment>
      ))}
    </dl>
  );
}

interface IStepProps {
  act: Act;
  kernel: IHolderKernel;
  source: IAdminSource;
  trans: ITranslation;
  isBusy: boolean;
  setBusy: (isBusy: boolean) => void;
  onBack: () => void;
  onOutcome: (outcome: IOutcome) => void;
}

function Step({ act, kernel, source, trans, ...rest }: IStepProps): JSX.Element {
  const [size, setSize] = React.useState<Partial<ISizeRequest>>({});
  const [text, setText] = React.useState('');
  const send = async (): Promise<string> => {
    const changes = changesOf(kernel, size);
    if (act === 'resize' && Object.keys(changes).length === 0) {
      throw new Error(trans.__('Nothing was changed. Change a field.'));
    }
    await request(act, kernel, source, changes, text);
    return doneText(act, kernel, trans);
  };
  const fields = {
    resize: <SizeFields {...{ kernel, size, trans }} onChange={setSize} />,
    message: <MessageField text={text} onChange={setText} trans={trans} />
  };
  return (
    <Confirmation
      {...{ act, send, ...rest }}
      question={questionText(act, kernel, trans)}
      confirm={confirmText(act, trans)}
      back={trans.__('Back')}
      fields={act === 'resize' || act === 'message' ? fields[act] : null}
      failedText={message => failureText(nameText(kernel), message, trans)}
    />
  );
}

async function request(
  act: Act,
  { id }: IHolderKernel,
  source: IAdminSource,
  size: Partial<ISizeRequest>,
  text: string
): Promise<void> {
  switch (act) {
    case 'swapOut':
      await source.swapOut(id);
      break;
    case 'restore':
      await source.restore(id);
      break;
    case 'resize':
      await source.resize(id, size);
      break;
    case 'message':
      await source.message(id, text);
      break;
    case 'end':
      await source.end(id);
      break;
  }
}

function actText(act: Act, trans: ITranslation): string {
  switch (act) {
    case 'swapOut':
      return trans.__('Swap Out…');
    case 'restore':
      return trans.__('Restore…');
    case 'resize':
      return trans.__('Resize…');
    case 'message':
      return trans.__('Message Owner…');
    case 'end':
      return trans.__('End…');
  }
}

function confirmText(act: Act, trans: ITranslation): string {
  switch (act) {
    case 'swapOut':
      return trans.__('Swap Out');
    case 'restore':
      return trans.__('Restore');
    case 'resize':
      return trans.__('Resize');
    case 'message':
      return trans.__('Send Message');
    case 'end':
      return trans.__('End Kernel');
  }
}

function questionText(act: Act, { owner }: IHolderKernel, trans: ITranslation): string {
  switch (act) {
    case 'swapOut':
      return trans.__('Move the memory of this kernel of %1 to the host? Its next cell waits until it is restored.', owner);
    case 'restore':
      return trans.__('Restore the memory of this kernel of %1 as soon as the GPU has free memory?', owner);
    case 'resize':
      return trans.__('Change the size of this kernel of %1? It runs on. A larger size may be queued.', owner);
    case 'message':
      return trans.__('JupyterLab shows %1 this message once, as a notification with your name.', owner);
    case 'end':
      return trans.__('End this kernel of %1? All variables will be lost.', owner);
  }
}

function doneText(act: Act, kernel: IHolderKernel, trans: ITranslation): string {
  const name = nameText(kernel);
  switch (act) {
    case 'swapOut':
      return trans.__('%1 is being swapped out.', name);
    case 'restore':
      return trans.__('%1 is being restored.', name);
    case 'resize':
      return trans.__('%1 has its new size, or is queued for it.', name);
    case 'message':
      return trans.__('The message about %1 was sent to %2.', name, kernel.owner);
    case 'end':
      return trans.__('%1 was ended.', name);
  }
}
