// The frame of a dialog with actions, and the step that asks for confirmation and makes the request.

import * as React from 'react';

import { ITranslation } from '../../tokens';

/** The outcome of an action, for the reader of the view. */
export interface IOutcome {
  readonly text: string;
  readonly isFailure: boolean;
}

interface IActionDialogProps {
  title: string;
  /** Set while a request is in flight: the dialog stays until its answer. */
  isBusy: boolean;
  onClose: () => void;
  children: (close: () => void) => React.ReactNode;
}

export function ActionDialog({ title, isBusy, onClose, children }: IActionDialogProps): JSX.Element {
  const box = React.useRef<HTMLDialogElement>(null);
  const id = React.useId();
  React.useEffect(() => {
    box.current?.showModal();
  }, []);
  const stay = (event: React.SyntheticEvent): void => {
    if (isBusy) {
      event.preventDefault();
    }
  };
  return (
    <dialog
      ref={box}
      className="aliquot-Admin-dialog"
      aria-labelledby={id}
      onCancel={stay}
      // Browsers let a second Escape pass a canceled `cancel`.
      onKeyDown={event => event.key === 'Escape' && stay(event)}
      onClose={event => event.target === box.current && onClose()}
    >
      <h2 id={id}>{title}</h2>
      {children(() => box.current?.close())}
    </dialog>
  );
}

interface IConfirmationProps {
  /** The action's name, for the style of its button. */
  act: string;
  question: string;
  confirm: string;
  back: string;
  /** The fields of the action, if it has some; the first has the focus. */
  fields: JSX.Element | null;
  /** Make the request. Resolves to the text of what was done; null: the dialog stays, with more to confirm. */
  send: () => Promise<string | null>;
  /** The text of a failure that comes after the dialog was closed. */
  failedText: (message: string) => string;
  isBusy: boolean;
  setBusy: (isBusy: boolean) => void;
  onBack: () => void;
  onOutcome: (outcome: IOutcome) => void;
}

export function Confirmation(props: IConfirmationProps): JSX.Element {
  const { isBusy, setBusy, onOutcome } = props;
  const [failure, setFailure] = React.useState('');
  const isShown = useIsShown();
  const submit = (event: React.FormEvent): void => {
    event.preventDefault();
    if (isBusy) {
      return;
    }
    setBusy(true);
    setFailure('');
    props.send().then(
      text => {
        if (text !== null) {
          onOutcome({ text, isFailure: false });
        } else if (isShown.current) {
          setBusy(false);
        }
      },
      error => {
        const message = error instanceof Error ? error.message : String(error);
        if (isShown.current) {
          setBusy(false);
          setFailure(message);
        } else {
          onOutcome({ text: props.failedText(message), isFailure: true });
        }
      }
    );
  };
  // A disabled button would lose the focus, and Escape with it.
  return (
    <form onSubmit={submit} aria-busy={isBusy}>
      <p>{props.question}</p>
      {props.fields}
      {failure && (
        <p className="aliquot-Admin-note" role="alert">
          {failure}
        </p>
      )}
      <div className="aliquot-Admin-actions">
        <button type="submit" autoFocus={props.fields === null} aria-disabled={isBusy} data-act={props.act}>
          {props.confirm}
        </button>
        <button type="button" aria-disabled={isBusy} onClick={() => isBusy || props.onBack()}>
          {props.back}
        </button>
      </div>
    </form>
  );
}

export function failureText(name: string, message: string, trans: ITranslation): string {
  return trans.__('The action on %1 failed: %2', name, message);
}

function useIsShown(): React.MutableRefObject<boolean> {
  const isShown = React.useRef(true);
  React.useEffect(() => {
    isShown.current = true;
    return () => {
      isShown.current = false;
    };
  }, []);
  return isShown;
}
