// Texts of the actions on a kernel: their names, and the reasons why one is not possible.

import { TranslationBundle } from '@jupyterlab/translation';

import { Action, Obstacle } from '../../model/action_rules';
import { IKernel, StatusError } from '../../tokens';

export function actionLabel(action: Action, trans: TranslationBundle): string {
  switch (action) {
    case 'open':
      return trans.__('Open Notebook');
    case 'newNotebook':
      return trans.__('New Notebook on This Kernel');
    case 'follow':
      return trans.__('Watch in Console');
    case 'resize':
      return trans.__('Resize');
    case 'swapOut':
      return trans.__('Swap Out Now');
    case 'restore':
      return trans.__('Restore');
    case 'postponeCulling':
      return trans.__('Keep Running');
    case 'share':
      return trans.__('Share…');
    case 'restart':
      return trans.__('Restart…');
    case 'shutDown':
      return trans.__('Shut Down…');
  }
}

/** The action's explanation for new users. */
export function actionCaption(action: Action, trans: TranslationBundle): string {
  switch (action) {
    case 'open':
      return trans.__('Open the notebook of this kernel');
    case 'newNotebook':
      return trans.__('Open a new notebook that is attached to this kernel');
    case 'follow':
      return trans.__('Open a console that shows the cells that all users run in this kernel, with their output');
    case 'resize':
      return trans.__('Change share, memory limit or priority without a restart');
    case 'swapOut':
      return trans.__('Move its memory to the host to free the GPU; the next use restores it');
    case 'restore':
      return trans.__('Restore its memory as soon as the GPU has free memory');
    case 'postponeCulling':
      return trans.__('Do not end this kernel for now');
    case 'share':
      return trans.__('Let another user or a team see this kernel, or use it');
    case 'restart':
      return trans.__('Restart the kernel at its size; all variables are lost');
    case 'shutDown':
      return trans.__('Shut down the kernel and free its GPU share');
  }
}

export function obstacleText(why: Obstacle, kernel: IKernel, trans: TranslationBundle): string {
  switch (why) {
    case 'agent-away':
      return trans.__('The node agent does not answer.');
    case 'already-on-gpu':
      return trans.__('Its memory is on the GPU already.');
    case 'already-swapped-out':
      return trans.__('Its memory is in the host already.');
    case 'already-restoring':
      return trans.__('Its memory is being restored already.');
    case 'busy':
      return trans.__('It is busy: it can be swapped out when nothing runs in it.');
    case 'ended':
      return trans.__('It has ended.');
    case 'never-swapped':
      return kernel.residency?.refusal
        ? trans.__('It is never swapped: %1', kernel.residency.refusal)
        : trans.__('It is never swapped.');
    case 'no-gpu':
      return trans.__('It has no GPU.');
    case 'no-notebook':
      return trans.__('It belongs to no notebook.');
    case 'not-announced':
      return trans.__('No termination is scheduled.');
    case 'not-mine':
      return trans.__('It is a kernel of %1.', kernel.owner);
    case 'not-shareable':
      return trans.__('Another program started it: no notebook can be attached to it.');
    case 'of-age':
      return trans.__('It ends because of its age, which cannot be changed.');
    case 'of-another-program':
      return trans.__('Another program started it: end it there.');
    case 'owners-alone':
      return trans.__('It is a kernel of %1, who alone can do this.', kernel.owner);
    case 'queued':
      return trans.__('It is queued and has not started.');
    case 'read-only':
      return trans.__('%1 shares it with you read-only.', kernel.owner);
    case 'starting':
      return trans.__('It is starting.');
    case 'wanted':
      return trans.__('It is about to be used: its memory is being restored.');
  }
}

/** The server's message of a failure, or ours if it sent none. */
export function failureText(error: unknown, trans: TranslationBundle): string {
  if (error instanceof StatusError && !error.message) {
    return error.kind === 'not-installed'
      ? trans.__('The server does not know this kernel any more.')
      : trans.__('The server refused and gave no reason.');
  }
  return error instanceof Error ? error.message : String(error);
}
