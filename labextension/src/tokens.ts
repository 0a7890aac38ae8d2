// Types that all other modules share: the server's reports, and the ids of what we register.
// Imports nothing of ours but the types that are generated from the server's contract.

import type { ISignal } from '@lumino/signaling';

import type * as api from './api';

/** The plugin's id; its settings live in schema/plugin.json. */
export const PLUGIN_ID = '@jupyter-aliquot/labextension:plugin';

/** The domain of our translatable strings. */
export const TRANSLATION_DOMAIN = 'aliquot';

/** Ids of our plugins, each of which can be disabled alone. */
export namespace PluginIDs {
  /** The model and the client; all others need it. */
  export const kernels = '@jupyter-aliquot/labextension:kernels';
  export const panel = PLUGIN_ID;
  /** Every size known to Lab by its name. */
  export const kernelSpecs = '@jupyter-aliquot/labextension:kernel-specs';
  /** Notebooks start at the size that they name. */
  export const sizedNotebooks = '@jupyter-aliquot/labextension:sized-notebooks';
  /** A kernel's name says the size that it has. */
  export const kernelNames = '@jupyter-aliquot/labextension:kernel-names';
  /** The dialog in which a kernel and its size are picked. */
  export const picker = '@jupyter-aliquot/labextension:picker';
  /** The commands about one kernel, which the buttons need. */
  export const kernelCommands = '@jupyter-aliquot/labextension:kernel-commands';
  export const history = '@jupyter-aliquot/labextension:history';
  /** The page of GPU-hours. */
  export const usage = '@jupyter-aliquot/labextension:usage';
  /** The page of folders that users share. */
  export const sharedFolders = '@jupyter-aliquot/labextension:shared-folders';
  /** GPU kernels in the panel of running terminals and kernels. */
  export const running = '@jupyter-aliquot/labextension:running';
  /** The page of administrators. */
  export const administration = '@jupyter-aliquot/labextension:administration';
  /** What cells had shown when their page comes back. */
  export const comingBack = '@jupyter-aliquot/labextension:coming-back';
  /** Cells that were lost with a connection. */
  export const lostCells = '@jupyter-aliquot/labextension:lost-cells';
  /** Cells that wait for their kernel. */
  export const cellExecutor = '@jupyter-aliquot/labextension:cell-executor';
  /** The kernel's line in the toolbar of its notebook; schema/toolbar.json has its place. */
  export const toolbar = '@jupyter-aliquot/labextension:toolbar';
  export const statusBar = '@jupyter-aliquot/labextension:status-bar';
  /** Badges of cells that wait for their kernel's GPU. */
  export const cellWaits = '@jupyter-aliquot/labextension:cell-waits';
  /** What a cell lacks that finds no CUDA device. */
  export const missingSize = '@jupyter-aliquot/labextension:missing-size';
  /** Prefetches a swapped-out kernel when its user turns to it. */
  export const prefetch = '@jupyter-aliquot/labextension:prefetch';
  /** Connects kernels again whose gateway was away. */
  export const reviving = '@jupyter-aliquot/labextension:reviving';
  /** Tells what happens to one's kernels. */
  export const notifications = '@jupyter-aliquot/labextension:notifications';
}

export namespace CommandIDs {
  export const show = 'aliquot:show-gpu-kernels';
  // Each about one kernel: args `{kernelId}`.
  export const openNotebook = 'aliquot:open-notebook';
  export const swapOut = 'aliquot:swap-out';
  export const restore = 'aliquot:restore';
  export const postponeCulling = 'aliquot:postpone-culling';
  export const restart = 'aliquot:restart-kernel';
  export const shutDown = 'aliquot:shut-down-kernel';
  export const share = 'aliquot:share-kernel';
  export const newNotebook = 'aliquot:new-notebook-on';
  export const follow = 'aliquot:follow-kernel';
  export const history = 'aliquot:show-history';
  export const administration = 'aliquot:show-administration';
  export const usage = 'aliquot:show-usage';
  export const sharedFolders = 'aliquot:show-shared-folders';
}

/** Actions on a kernel that have a command. */
export type CommandAction =
  | 'open'
  | 'newNotebook'
  | 'follow'
  | 'swapOut'
  | 'restore'
  | 'postponeCulling'
  | 'share'
  | 'restart'
  | 'shutDown';

export const ACTION_COMMANDS: Readonly<Record<CommandAction, string>> = {
  open: CommandIDs.openNotebook,
  newNotebook: CommandIDs.newNotebook,
  follow: CommandIDs.follow,
  swapOut: CommandIDs.swapOut,
  restore: CommandIDs.restore,
  postponeCulling: CommandIDs.postponeCulling,
  share: CommandIDs.share,
  restart: CommandIDs.restart,
  shutDown: CommandIDs.shutDown
};

// Short names of the generated types. gateway/api/openapi.yaml defines the fields.
export type ICompute = api.Compute;
export type IComputeControl = api.ComputeControl;
export type IDevice = api.Device;
export type ITermination = api.Termination;
export type IScheduledTermination = api.ScheduledTermination;
export type IOwnerMessage = api.OwnerMessage;
export type IHistory = api.History;
export type IHistoryFigure = api.HistoryFigure;
export type IKernel = api.Kernel & { readonly access?: 'own' | 'write' | 'read'; readonly shares?: readonly IShare[] | null };
/** A share of a kernel. */
export interface IShare {
  readonly kind: 'user' | 'team';
  readonly name: string;
  readonly access: 'read' | 'write';
}
export type IKernelEvent = api.KernelEvent;
export type IKernelDevice = api.KernelDevice;
export type INode = api.Node;
export type INodeSchedule = api.NodeSchedule;
export type IMovePlan = api.MovePlan;
export type IMoveRun = api.MoveRun;
export type ICordon = api.Cordon;
export type IDryRun = api.DryRun;
export type IHolders = api.Holders;
export type IHolderKernel = api.HolderKernel;
export type IBudget = api.Budget;
export type IInvitation = api.Invitation;
export type IOpenInvitation = api.OpenInvitation;
export type IInvitations = api.Invitations;
/** A requested invitation. `until` is a moment, or empty. */
export interface IInvitationWish {
  readonly path: string;
  readonly kind: 'user' | 'team';
  readonly invited: string;
  readonly access: 'read' | 'write';
  readonly until: string;
}
export type IGpuHours = api.GpuHours;
export type IUsageReport = api.UsageReport;
export type IQueue = api.Queue;
export type IQueuedRequest = api.QueuedRequest;
export type IQuota = api.Quota;
export type ITeamQuota = api.TeamQuota;
export type IResidency = api.Residency;
export type IResize = api.Resize;
export type IKeptMessage = api.KeptMessage;
export type IRunningCell = api.RunningCell;
export type IRunningCells = api.RunningCells;
export type ISeenMessages = api.SeenMessages;
export type ISessionOptions = api.SessionOptions;
export type ISize = api.Size;
export type ISizes = api.Sizes;
export type IStatus = api.Status;
export type ITeamGpuLimit = api.TeamGpuLimit;
export type IUncontrolledProcess = api.UncontrolledProcess;
export type IUserGpuLimit = api.UserGpuLimit;
export type IHostMemory = NonNullable<api.Kernel['host_memory']>;
/** A node on another machine, whose agent dials the gateway. */
export type IRemoteNode = api.RemoteNode;
export type IHostCopies = NonNullable<api.Node['host_copies']>;
export type IMemoryQueue = NonNullable<api.Residency['queued']>;
export type KernelState = api.Kernel['state'];
export type Priority = api.Kernel['priority'];

/** A requested size: of a new kernel or, with its id, of a running one. */
export interface ISizeRequest {
  readonly gpus: number;
  /** Text such as `8GiB`, or bytes; null for the share's part of each device. */
  readonly memory?: string | number | null;
  readonly priority?: Priority;
}

/** CPUs, memory and folders of the host that are chosen beside a size; null for its own part. */
export interface IHostDraft {
  readonly cpus: number | null;
  readonly ramGib: number | null;
  /** null: all folders of the user. */
  readonly folders: readonly string[] | null;
}

/** The kinds of errors; each has its own message and remedy in the panel. */
export type ProblemKind = 'not-installed' | 'forbidden' | 'too-many' | 'unreachable' | 'server';

/** The part of Lab's translations that modules without a DOM use. */
export interface ITranslation {
  __(text: string, ...values: unknown[]): string;
}

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

/** The source of a model's status: the client in Lab, a script in tests. */
export interface IStatusSource {
  /** Return the status as text. Rejects with a StatusError. */
  fetchText(): Promise<string>;
  /** Postpone the end of a kernel. Rejects with a StatusError. */
  postponeCulling(kernelId: string): Promise<void>;
}

/** The source of a model's events: the websocket in Lab, a script in tests. */
export interface IEventStream {
  readonly isLive: boolean;
  readonly liveChanged: ISignal<IEventStream, boolean>;
  readonly received: ISignal<IEventStream, IKernelEvent>;
  open(catchUp: () => Promise<void>): void;
  close(): void;
  reconnect(): void;
}

/** A stored text that survives a reload: local storage in Lab, a variable in tests. */
export interface IMemory {
  get(): string | null;
  set(text: string): void;
}
