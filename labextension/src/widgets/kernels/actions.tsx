// The buttons of a kernel's actions: resize, swap out, restore, restart, end. A disabled one tells
// its reason; a failure shows beside the buttons with the server's message. They run the commands
// that menus also use.

import { TranslationBundle } from '@jupyterlab/translation';
import { Button } from '@jupyterlab/ui-components';
import * as React from 'react';

import { move, obstacle } from '../../model/action_rules';
import { AliquotClient } from '../../client/client';
import { isSharedWithMe, suffices } from '../../model/kernel_access';
import { GpuKernelsModel, kernelTitle } from '../../model/model';
import { ACTION_COMMANDS, CommandAction, IKernel, IStatus } from '../../tokens';
import { actionCaption, actionLabel, failureText, obstacleText } from '../elements/action_words';
import { ResizeForm } from '../sizes/resize_form';
import { sharedHint } from '../sharing/share_words';

/** The used part of Lab's command registry. */
export interface ICommands {
  hasCommand(id: string): boolean;
  isEnabled(id: string, args: { kernelId: string }): boolean;
  execute(id: string, args: { kernelId: string }): Promise<unknown>;
}

export interface IKernelActionsProps {
  kernel: IKernel;
  status: IStatus;
  model: GpuKernelsModel;
  client: AliquotClient;
  /** Lab's command registry; an action is offered if its command of ACTION_COMMANDS exists. */
  commands: ICommands;
  trans: TranslationBundle;
  /** Whether the notebook is visible already. */
  withoutOpen?: boolean;
}

export function KernelActions(props: IKernelActionsProps): JSX.Element {
  const { kernel, status, commands, trans } = props;
  const [failure, setFailure] = React.useState('');
  const [underWay, setUnderWay] = React.useState<CommandAction | null>(null);
  React.useEffect(() => setFailure(''), [kernel.state]);
  const run = async (action: CommandAction): Promise<void> => {
    setUnderWay(action);
    setFailure('');
    try {
      await commands.execute(ACTION_COMMANDS[action], { kernelId: kernel.id });
    } catch (error) {
      setFailure(failureText(error, trans));
    }
    setUnderWay(null);
  };
  const offered = actionsOf(kernel, props.withoutOpen ?? false).filter(one => commands.hasCommand(ACTION_COMMANDS[one]));
  return (
    <div className="aliquot-Actions" role="group" aria-label={trans.__('Actions for %1', kernelTitle(kernel))}>
      {isSharedWithMe(kernel) ? (
        <p className="aliquot-Resize-dry-run">{sharedHint(kernel, trans)}</p>
      ) : (
        <Resize {...props} />
      )}
      <div className="aliquot-Actions-row">
        {offered.map(action => (
          <ActionButton key={action} {...{ action, kernel, status, trans, underWay }} run={() => void run(action)} />
        ))}
      </div>
      {failure && (
        <p className="aliquot-Actions-failure" role="alert">
          {failure}
        </p>
      )}
    </div>
  );
}

/** The form, or the reason why there is none. */
function Resize(props: IKernelActionsProps): JSX.Element | null {
  const { kernel, status, trans } = props;
  const why = obstacle('resize', kernel, status);
  if (why === null) {
    return <ResizeForm {...props} />;
  }
  if (why === 'no-gpu' || why === 'ended') {
    return null;
  }
  return <p className="aliquot-Resize-dry-run">{trans.__('This kernel cannot be resized now: %1', obstacleText(why, kernel, trans))}</p>;
}

/** The actions that a share allows; a text beside them tells why others are missing. */
function ofShared(kernel: IKernel, withoutOpen: boolean): CommandAction[] {
  const found: CommandAction[] = withoutOpen ? [] : ['newNotebook', 'follow'];
  if (suffices(kernel, 'write')) {
    found.push(...(kernel.gpus > 0 && move(kernel) === 'restore' ? (['restore'] as const) : []), 'restart');
  }
  return found;
}

function actionsOf(kernel: IKernel, withoutOpen: boolean): CommandAction[] {
  if (isSharedWithMe(kernel)) {
    return ofShared(kernel, withoutOpen);
  }
  const found: CommandAction[] = withoutOpen ? [] : ['open'];
  if (kernel.gpus > 0) {
    found.push(move(kernel));
  }
  if (kernel.scheduled_termination) {
    found.push('postponeCulling');
  }
  return [...found, 'share', 'restart', 'shutDown'];
}

interface IActionButtonProps {
  action: CommandAction;
  kernel: IKernel;
  status: IStatus;
  trans: TranslationBundle;
  underWay: CommandAction | null;
  run: () => void;
}

/**
 * A disabled button keeps its place in the tab order, so that keyboard users can read its reason.
 */
function ActionButton({ action, kernel, status, trans, underWay, run }: IActionButtonProps): JSX.Element {
  const why = obstacle(action, kernel, status);
  const said = why === null ? actionCaption(action, trans) : obstacleText(why, kernel, trans);
  const isOff = why !== null || underWay !== null;
  const id = React.useId();
  return (
    <>
      <Button
        type="button"
        small
        className="aliquot-Action"
        title={said}
        aria-describedby={why === null ? undefined : id}
        aria-disabled={isOff || undefined}
        aria-busy={underWay === action || undefined}
        onClick={isOff ? undefined : run}
      >
        {actionLabel(action, trans)}
      </Button>
      {why !== null && (
        <span id={id} hidden>
          {said}
        </span>
      )}
    </>
  );
}
