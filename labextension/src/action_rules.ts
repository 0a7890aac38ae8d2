// What may be asked of a kernel in which state, as one table, and why not where it may not. Pure; the widgets have the words.

import { notebookPath } from './model';
import { CommandAction, IKernel, IStatus, KernelState } from './tokens';

export type Action = CommandAction | 'resize';

/** Why an action cannot work now. */
export type Obstacle =
  | 'agent-away'
  | 'already-resident'
  | 'already-swapped'
  | 'already-waking'
  | 'busy'
  | 'ended'
  | 'never-swapped'
  | 'no-gpu'
  | 'no-notebook'
  | 'not-announced'
  | 'not-mine'
  | 'of-age'
  | 'of-another-program'
  | 'pending'
  | 'starting'
  | 'wanted';

type Row = Readonly<Record<KernelState, Obstacle | null>>;

const OVER = { ended: 'ended' } as const;
const NOT_YET = { pending: 'pending', starting: 'starting', ...OVER } as const;
const RUNNING = { resident: null, swapped: null, waking: null, checkpointed: null } as const;

/** By the kernel's state alone; null: nothing is in the way. */
const BY_STATE: Readonly<Record<Action, Row>> = {
  open: { pending: null, starting: null, ...RUNNING, ended: null },
  resize: { ...NOT_YET, ...RUNNING },
  swapOut: {
    ...NOT_YET,
    resident: null,
    swapped: 'already-swapped',
    waking: 'wanted',
    checkpointed: 'already-swapped'
  },
  wake: { ...NOT_YET, resident: 'already-resident', swapped: null, waking: 'already-waking', checkpointed: null },
  keep: { ...NOT_YET, ...RUNNING },
  restart: { ...NOT_YET, ...RUNNING },
  shutDown: { pending: null, starting: null, ...RUNNING, ...OVER }
};

const OF_MEMORY: readonly Action[] = ['resize', 'swapOut', 'wake'];
const OF_THE_PROCESS: readonly Action[] = ['restart', 'shutDown'];

/** Why this cannot be asked of the kernel now; null: it can. The server has the last word. */
export function obstacle(action: Action, kernel: IKernel, status: IStatus): Obstacle | null {
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
  if (kernel.owner !== status.user.name) {
    return 'not-mine';
  }
  if (action === 'keep') {
    return ofKeeping(kernel);
  }
  return notebookPath(kernel, status) === null ? 'no-notebook' : null;
}

/** Which of the two moves is of use: one is always out of place. */
export function move(kernel: IKernel): 'swapOut' | 'wake' {
  return ['swapped', 'waking', 'checkpointed'].includes(kernel.state) ? 'wake' : 'swapOut';
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
  // A gateway that does not tell since when a kernel is idle leaves it to the server to refuse.
  return kernel.idle_since === null || kernel.execution_state === 'busy' ? 'busy' : null;
}

function ofKeeping(kernel: IKernel): Obstacle | null {
  if (!kernel.ending_soon) {
    return 'not-announced';
  }
  return kernel.ending_soon.can_keep ? null : 'of-age';
}
