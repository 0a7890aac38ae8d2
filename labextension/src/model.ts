// What the panel knows: the last status, and what went wrong since. Polls while somebody watches, and rarely while
// somebody waits for news. No DOM.

import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { IPoll, Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Remembered } from './news';
import { IDevice, IKernel, IMemory, IStatus, IStatusSource, StatusError } from './tokens';

/** A snapshot: replaced as a whole, never changed. Both null: nothing was answered yet. */
export interface IState {
  readonly status: IStatus | null;
  /** Why the last request failed. With a status beside it, that status is stale. */
  readonly problem: StatusError | null;
}

const FORGETFUL: IMemory = { get: () => null, set: () => undefined };

export class GpuKernelsModel implements IDisposable {
  constructor(options: GpuKernelsModel.IOptions) {
    this._source = options.source;
    this._dismissed = new Remembered(options.dismissed ?? FORGETFUL);
    this._intervalSeconds = options.intervalSeconds ?? GpuKernelsModel.DEFAULT_INTERVAL_SECONDS;
    this._poll = new Poll<void, StatusError>({
      auto: false,
      factory: () => this._ask(),
      frequency: Private.frequency(this._intervalSeconds),
      name: '@aliquot/lab:status',
      standby: () => (this._watchers + this._waiters === 0 ? true : 'when-hidden')
    });
  }

  get state(): IState {
    return this._state;
  }

  /** Emitted when the state was replaced by a different one; an equal answer is silent. */
  get changed(): ISignal<this, IState> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Seconds between two requests. */
  set intervalSeconds(seconds: number) {
    this._intervalSeconds = seconds;
    this._setFrequency();
  }

  /** Keeps the state live until the result is disposed. Nobody watching means no requests. */
  watch(): IDisposable {
    this._watchers += 1;
    this._setFrequency();
    void this.refresh();
    return new DisposableDelegate(() => {
      this._watchers -= 1;
      this._setFrequency();
    });
  }

  /** Keeps the state no older than a quarter of a minute, for who is told of what happens. */
  waitForNews(): IDisposable {
    this._waiters += 1;
    this._setFrequency();
    void this.refresh();
    return new DisposableDelegate(() => {
      this._waiters -= 1;
      this._setFrequency();
    });
  }

  /** Whether the user has put this ended kernel away. */
  isDismissed(kernel: IKernel): boolean {
    return kernel.ending !== null && this._dismissed.has(Private.endKey(kernel));
  }

  /** Puts an ended kernel away, in this browser. */
  dismiss(kernel: IKernel): void {
    this._dismissed.add([Private.endKey(kernel)]);
    this._changed.emit(this._state);
  }

  /** Asks the server to keep a kernel that would be ended. Rejects with a StatusError. */
  async keep(kernelId: string): Promise<void> {
    await this._source.keep(kernelId);
    await this.refresh();
  }

  /** Asks without waiting for the interval to end. Never rejects: a failure is part of the state. */
  async refresh(): Promise<void> {
    await this._poll.refresh();
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._poll.dispose();
    Signal.clearData(this);
  }

  /** Called by the poll, which starts a second round when refreshed during the first: that one joins the request. */
  private _ask(): Promise<void> {
    this._underWay ??= this._fetch().finally(() => {
      this._underWay = null;
    });
    return this._underWay;
  }

  /** Rejects on failure, so that the poll backs off. */
  private async _fetch(): Promise<void> {
    try {
      this._replace({ status: await this._source.fetch(), problem: null });
    } catch (error) {
      const problem = error instanceof StatusError ? error : new StatusError('server', String(error));
      // A server without the extension has no kernels of ours: what was shown before is not stale but gone.
      const status = problem.kind === 'not-installed' ? null : this._state.status;
      this._replace({ status, problem });
      throw problem;
    }
  }

  private _setFrequency(): void {
    if (this._isDisposed) {
      return;
    }
    const shown = this._watchers > 0 || this._waiters === 0;
    const seconds = shown ? this._intervalSeconds : Math.max(this._intervalSeconds, GpuKernelsModel.NEWS_SECONDS);
    this._poll.frequency = Private.frequency(seconds);
  }

  private _replace(state: IState): void {
    if (this._isDisposed || Private.isSame(state, this._state)) {
      return;
    }
    this._state = state;
    this._changed.emit(state);
  }

  private readonly _source: IStatusSource;
  private readonly _poll: Poll<void, StatusError>;
  private readonly _changed = new Signal<this, IState>(this);
  private _state: IState = { status: null, problem: null };
  private _underWay: Promise<void> | null = null;
  private _watchers = 0;
  private _waiters = 0;
  private _intervalSeconds: number;
  private readonly _dismissed: Remembered;
  private _isDisposed = false;
}

export namespace GpuKernelsModel {
  export const DEFAULT_INTERVAL_SECONDS = 2;
  export const NEWS_SECONDS = 15;

  export interface IOptions {
    source: IStatusSource;
    intervalSeconds?: number;
    /** Where it is kept which ended kernels were put away; if not given, until the page is left. */
    dismissed?: IMemory;
  }
}

/** Those that still hold or wait for something, and those that are no more, which have their reason. */
export function divide(kernels: readonly IKernel[]): { live: IKernel[]; ended: IKernel[] } {
  const isOver = (kernel: IKernel): boolean => kernel.state === 'ended' && kernel.ending !== null;
  return { live: kernels.filter(kernel => !isOver(kernel)), ended: kernels.filter(isOver) };
}

/** The path of the notebook to open for a kernel of this user; null where its label is no path, or not theirs. */
export function notebookPath(kernel: IKernel, status: IStatus): string | null {
  const isPath = /\.ipynb$/i.test(kernel.label) && !kernel.label.startsWith('/');
  return isPath && kernel.owner === status.user.name ? kernel.label : null;
}

/** What to call a kernel: its notebook's file name, its label, its kernelspec, or for want of these its id. */
export function kernelTitle(kernel: IKernel): string {
  const label = kernel.label.trim();
  return (/\.ipynb$/i.test(label) ? label.split('/').pop() : label) || kernel.name || kernel.id.slice(0, 8);
}

/** Whether kernels show their owner: as soon as one is not the user's own, as administrators may see. */
export function showsOwners(status: IStatus): boolean {
  return status.kernels.some(kernel => kernel.owner !== status.user.name);
}

/** Why the quota does not hold in a kernel, in the self-check's words; null where it holds or is not known yet. */
export function interceptionFailure(kernel: IKernel): string | null {
  const match = /^failed(?::\s*(.*))?$/s.exec(kernel.interception);
  return match ? match[1] || 'the self-check failed' : null;
}

/** Why the node's enforcer could not set a kernel's limits; null where it could, or is about to. */
export function enforcementFailure(kernel: IKernel): string | null {
  const match = /^failed:\s*(.*)$/s.exec(kernel.enforcement);
  return match?.[1] ?? null;
}

/** How a device's memory divides, in bytes that add up to it: mine, others', reserved but not used, free. */
export function memoryParts(device: IDevice): { mine: number; others: number; held: number; free: number } {
  const total = Math.max(device.memory_bytes, 0);
  const used = Private.within(device.used_bytes, total);
  const mine = Private.within(device.mine_bytes, used);
  const held = Private.within(device.reserved_bytes, total) - used;
  const heldOrNone = Math.max(held, 0);
  return { mine, others: used - mine, held: heldOrNone, free: total - used - heldOrNone };
}

namespace Private {
  const MAX_BACKOFF_MS = 15000;

  export function frequency(seconds: number): IPoll.Frequency {
    const interval = Math.round(seconds * 1000);
    return { interval, backoff: true, max: Math.max(MAX_BACKOFF_MS, interval) };
  }

  export function endKey(kernel: IKernel): string {
    return `${kernel.id} ${kernel.ending?.at ?? ''}`;
  }

  export function isSame(a: IState, b: IState): boolean {
    return (
      a.problem?.kind === b.problem?.kind &&
      a.problem?.message === b.problem?.message &&
      JSON.stringify(a.status) === JSON.stringify(b.status)
    );
  }

  export function within(value: number, most: number): number {
    return Math.min(Math.max(value, 0), most);
  }
}
