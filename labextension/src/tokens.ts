// The words that all other modules share: what the server's status says, and the ids of what we register.
// Imports nothing of ours.

/** The plugin's id; its settings live in schema/plugin.json. */
export const PLUGIN_ID = '@aliquot/lab:plugin';

/** The domain of our translatable strings. */
export const TRANSLATION_DOMAIN = 'aliquot';

export namespace CommandIDs {
  export const show = 'aliquot:show-gpu-kernels';
}

/** A GPU of the node. `used_bytes` is the driver's figure for the whole device, whoever uses it. */
export interface IDevice {
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  readonly memory_bytes: number;
  readonly reserved_bytes: number;
  readonly reserved_gpus: number;
  readonly used_bytes: number;
  readonly mine_bytes: number;
  readonly utilization_percent: number | null;
  readonly temperature_celsius: number | null;
  readonly power_watts: number | null;
  readonly lost: boolean;
  readonly compute_control: IComputeControl | null;
}

/** What decides about a device's time: `contended` while there is something to decide. */
export interface IComputeControl {
  readonly controller: string;
  readonly sharing: string;
  readonly target_percent: number | null;
  readonly contended: boolean;
}

/** A kernel's part of a device's time, of the last second or so; shares are parts of 1. */
export interface ICompute {
  readonly share_entitled: number | null;
  readonly share_used: number | null;
  readonly own_seconds: number;
  readonly stretch: number | null;
  readonly throttled_seconds: number;
  readonly bound_seconds: number | null;
  readonly pace: string;
  readonly held_back: string | null;
  readonly unholdable: boolean;
  readonly is_capped: boolean;
}

/** What one kernel holds of one device. */
export interface IKernelDevice {
  readonly uuid: string;
  readonly index: number;
  readonly gpus: number;
  readonly quota_bytes: number;
  readonly guarantee_bytes: number;
  readonly used_bytes: number;
  readonly peak_bytes: number;
  readonly busy_seconds: number;
  readonly context_bytes: number;
  readonly compute: ICompute | null;
}

/** A process of a kernel with memory on a GPU that no hook counts. */
export interface IUnhookedProcess {
  readonly pid: number;
  readonly name: string;
  readonly index: number;
  readonly used_bytes: number | null;
  readonly charged_bytes: number;
  readonly why: string;
}

/** Page-locked memory of the host; `quota_bytes` is null where there is no limit. */
export interface IHostMemory {
  readonly quota_bytes: number | null;
  readonly used_bytes: number;
  readonly peak_bytes: number;
  readonly refusals: number;
}

/** Why and when a kernel ended; `by` is the user who asked for it, or empty. */
export interface IEnding {
  readonly code: string;
  readonly message: string;
  readonly at: string;
  readonly exit_code: number | null;
  readonly signal: number | null;
  readonly by: string;
}

/** A kernel that will be ended for want of use, or for its age, if nothing happens. */
export interface IEndingSoon {
  readonly at: string;
  readonly reason: string;
  readonly can_keep: boolean;
}

/** Messages that browsers were not sent, by the reason. */
export interface IDroppedMessages {
  readonly rate_limit: number;
  readonly closed_socket: number;
  readonly relay: number;
  readonly unsent: number;
}

/** A kernel that wants its memory back while there is no room for it. */
export interface IWaits {
  readonly reason: string;
  readonly seconds: number;
  readonly before: number;
  readonly expected_seconds: number | null;
}

/** Where a kernel's memory is: on its devices, or swapped to the host. `mode` "off" is never swapped. */
export interface IResidency {
  readonly mode: string;
  readonly state: string;
  readonly since: string | null;
  readonly swapped_bytes: number;
  readonly elastic_bytes: number;
  readonly staying: readonly { readonly reason: string; readonly bytes: number }[];
  readonly refusal: string | null;
  readonly waits: IWaits | null;
  readonly swaps_out: number;
  readonly swaps_in: number;
  readonly waited_seconds: number;
}

/** A change of a running kernel's size that waits for room. */
export interface IResize {
  readonly state: 'pending';
  readonly gpus: number;
  readonly memory_limit_bytes: number | null;
  readonly workload_class: string;
  readonly reason: string;
  readonly position: number;
  readonly since: string;
}

/** Host memory with the copies of swapped kernels, `spilled_bytes` of them in files. */
export interface IHostCopies {
  readonly used_bytes: number;
  readonly budget_bytes: number | null;
  readonly spilled_bytes: number;
}

export type KernelState = 'pending' | 'starting' | 'resident' | 'swapped' | 'waking' | 'checkpointed' | 'ended';

/** A kernel with a GPU of its own size, or a plain one, of 0 GPUs, that has something to tell. */
export interface IKernel {
  readonly id: string;
  readonly name: string;
  readonly owner: string;
  readonly label: string;
  readonly gpus: number;
  readonly memory_limit_bytes: number | null;
  readonly workload_class: string;
  readonly state: KernelState;
  readonly reason: string | null;
  readonly queue_position: number | null;
  readonly execution_state: string | null;
  readonly quota_bytes: number;
  readonly guarantee_bytes: number;
  readonly used_bytes: number;
  readonly over_quota_bytes: number;
  readonly peak_bytes: number;
  readonly busy_seconds: number;
  readonly context_bytes: number;
  readonly refusals: number;
  /** "unknown" until the first GPU call, then "holds" or "failed: …". */
  readonly interception: string;
  /** "pending" until the kernel has a process, then "holds" or "failed: …". */
  readonly enforcement: string;
  readonly unhooked_processes: readonly IUnhookedProcess[];
  readonly host_memory: IHostMemory | null;
  readonly residency: IResidency | null;
  readonly resize: IResize | null;
  readonly dropped_messages: IDroppedMessages | null;
  readonly created: string | null;
  readonly ending: IEnding | null;
  /** Why it was last started again without anybody asking. */
  readonly last_crash: IEnding | null;
  readonly ending_soon: IEndingSoon | null;
  readonly devices: readonly IKernelDevice[];
}

export interface INode {
  readonly name: string;
  readonly driver: 'softgpu' | 'nvidia' | null;
  readonly enforcer: string | null;
  readonly foreign_processes: number;
  readonly oversubscription: number;
  readonly host_copies: IHostCopies | null;
  readonly agent: 'ok' | 'unavailable';
  /** What is wrong with the agent and what to do; null when nothing is. */
  readonly message: string | null;
}

/** The answer of GET /aliquot/api/status. */
export interface IStatus {
  readonly version: string;
  readonly user: { readonly name: string; readonly role: string };
  readonly node: INode;
  readonly devices: readonly IDevice[];
  readonly kernels: readonly IKernel[];
  readonly queue: { readonly length: number };
}

/** Why there is no status: each kind has its own words and remedy in the panel. */
export type ProblemKind = 'not-installed' | 'forbidden' | 'unreachable' | 'server';

/** A failed request for the status. */
export class StatusError extends Error {
  constructor(
    readonly kind: ProblemKind,
    message: string
  ) {
    super(message);
    this.name = 'StatusError';
  }
}

/** Where a model gets its status from: the client in Lab, a script in tests. */
export interface IStatusSource {
  fetch(): Promise<IStatus>;
  /** Asks that a kernel be kept which would be ended. Rejects with a StatusError. */
  keep(kernelId: string): Promise<void>;
}

/** A text that outlives the page: the browser's storage in Lab, a variable in tests. */
export interface IMemory {
  get(): string | null;
  set(text: string): void;
}
