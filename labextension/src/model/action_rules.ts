// The table of actions on a kernel: in which state each is possible, and the reason if it is not.
// Pure; widgets have the words.

import { Access, isSharedWithMe, suffices } from './kernel_access';
import { notebookPath } from './model';
import { CommandAction, IKernel, IStatus, KernelState } from '../tokens';

export type Action = CommandAction | 'resize';

/** The reason why an action is not possible now. */
export type Obstacle =
  | 'agent-away'
  | 'already-on-gpu'
  | 'already-swapped-out'
  | 'already-restoring'
  | 'busy'
  | 'ended'
  | 'never-swapped'
  | 'no-gpu'
  | 'no-notebook'
  | 'not-announced'
  | 'not-mine'
  | 'not-shareable'
  | 'of-age'
  | 'of-another-program'
  | 'owners-alone'
  | 'queued'
  | 'read-only'
  | 'starting'
  | 'wanted';

/** The access that an action needs on a kernel of another user. */
const NEEDED: Readonly<Record<Action, Access>> = {
  open: 'own',
  newNotebook: 'read',
  follow: 'read',
  resize: 'own',
  swapOut: 'own',
  restore: 'write',
  postponeCulling: 'own',
  share: 'own',
  restart: 'write',
  shutDown: 'own'
};

type Row = Readonly<Record<KernelState, Obstacle | null>>;

const OVER = { ended: 'ended' } as const;
const NOT_YET = { queued: 'queued', starting: 'starting', ...OVER } as const;
const RUNNING = { on_gpu: null, swapped_out: null, restoring: null, checkpointed: null } as const;

/** The reason that the kernel's state gives against an action; null if none. */
const BY_STATE: Readonly<Record<Action, Row>> = {
  open: { queued: null, starting: null, ...RUNNING, ended: null },
  newNotebook: { ...NOT_YET, ...RUNNING },
  follow: { ...NOT_YET, ...RUNNING },
  resize: { ...NOT_YET, ...RUNNING },
  swapOut: {
    ...NOT_YET,
    on_gpu: null,
    swapped_out: 'already-swapped-out',
    restoring: 'wanted',
    checkpointed: 'already-swapped-out'
  },
  restore: { ...NOT_YET, on_gpu: 'already-on-gpu', swapped_out: null, restoring: 'already-restoring', checkpointed: null },
  postponeCulling: { ...NOT_YET, ...RUNNING },
  share: { queued: null, starting: null, ...RUNNING, ...OVER },
  restart: { ...NOT_YET, ...RUNNING },
  shutDown: { queued: null, starting: null, ...RUNNING, ...OVER }
};

const OF_MEMORY: readonly Action[] = ['resize', 'swapOut', 'restore'];
const OF_THE_PROCESS: readonly Action[] = ['restart', 'shutDown'];
/** Actions of Jupyter's own kernel API; a kernel that another program started does not have it. */
const OF_JUPYTER: readonly Action[] = ['share', 'newNotebook', 'follow'];

/** The reason why the action is not possible now; null if it is. The server decides in the end. */
export function obstacle(action: Action, kernel: IKernel, status: IStatus): Obstacle | null {
  const byAccess = ofAccess(action, kernel);
  if (byAccess !== null) {
    return byAccess;
  }
  const byState = BY_STATE[action][kernel.state];
  if (byState !== null) {
    return byState;
  }
  if (OF_MEMORY.includes(action)) {
    return ofMemory(action, kernel, status);
  }
  if (OF_THE_PROCESS.includes(action)) {
    return kernel.name === '' ? 'of-another-program' : null;
  }
  if (OF_JUPYTER.includes(action)) {
    return kernel.name === '' ? 'not-shareable' : null;
  }
  if (kernel.owner !== status.user.name) {
    return 'not-mine';
  }
  if (action === 'postponeCulling') {
    return ofKeeping(kernel);
  }
  return notebookPath(kernel, status) === null ? 'no-notebook' : null;
}

/** Whether to offer this one of swap-out and restore: at any time only one of them makes sense. */
export function move(kernel: IKernel): 'swapOut' | 'restore' {
  return ['swapped_out', 'restoring', 'checkpointed'].includes(kernel.state) ? 'restore' : 'swapOut';
}

/** The reason against an action on a kernel that another user shares; null if none. */
function ofAccess(action: Action, kernel: IKernel): Obstacle | null {
  if (!isSharedWithMe(kernel) || suffices(kernel, NEEDED[action])) {
    return null;
  }
  return NEEDED[action] === 'write' ? 'read-only' : 'owners-alone';
}

function ofMemory(action: Action, kernel: IKernel, status: IStatus): Obstacle | null {
  if (kernel.gpus === 0) {
    return 'no-gpu';
  }
  if (status.node.agent === 'unavailable') {
    return 'agent-away';
  }
  if (action !== 'swapOut') {
    return null;
  }
  if (kernel.residency?.mode === 'off') {
    return 'never-swapped';
  }
  // An older gateway does not report since when a kernel is idle; the server refuses the request if
  // it must.
  return kernel.idle_since === null || kernel.execution_state === 'busy' ? 'busy' : null;
}

function ofKeeping(kernel: IKernel): Obstacle | null {
  if (!kernel.scheduled_termination) {
    return 'not-announced';
  }
  return kernel.scheduled_termination.can_postpone ? null : 'of-age';
}
