// The state of this page: the last status with later events applied, and the last error. Requests
// the status often while a widget watches, rarely while only notifications wait for news. No DOM.

import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { BROWSER_CLOCK, IClock } from '../base/clock';
import { Remembered } from './news';
import { ComeBack, IPage, NoPage } from '../client/page';
import { patch } from './patch';
import { share } from './sharing';
import { readStatus } from './status_form';
import { StatusPoll } from '../client/status_poll';
import { IEventStream, IKernel, IKernelEvent, IMemory, IStatus, IStatusSource, ITranslation, StatusError } from '../tokens';

export * from './kernel_facts';

/** An immutable snapshot. Both fields are null until the first answer. */
export interface IState {
  readonly status: IStatus | null;
  /** The error of the last request, if it failed; a status beside it is stale. */
  readonly problem: StatusError | null;
}

/** A kernel whose report changed; null if the server does not list it any more. */
export interface IKernelChange {
  readonly id: string;
  readonly kernel: IKernel | null;
}

const ENGLISH: ITranslation = { __: text => text };
const FORGETFUL: IMemory = { get: () => null, set: () => undefined };

export class GpuKernelsModel implements IDisposable {
  constructor(options: GpuKernelsModel.IOptions) {
    this._source = options.source;
    this._stream = options.stream ?? null;
    this._page = options.page ?? new NoPage();
    this._clock = options.clock ?? BROWSER_CLOCK;
    this._trans = options.trans ?? ENGLISH;
    this._dismissed = new Remembered(options.dismissed ?? FORGETFUL);
    this._poll = new StatusPoll({
      ask: () => this._ask(),
      isNeeded: () => this._isNeeded && !this._page.isHidden,
      clock: this._clock
    });
    this._poll.intervalSeconds = options.intervalSeconds ?? GpuKernelsModel.DEFAULT_INTERVAL_SECONDS;
    this._stream?.received.connect((_, event) => this._hear(event));
    this._stream?.liveChanged.connect((_, isLive) => this._turn(isLive));
    this._page.hid.connect(() => this._hide());
    this._page.cameBack.connect((_, why) => this._comeBack(why));
  }

  /**
   * The current state. Kernels and devices that did not change keep their identity from state to
   * state.
   */
  get state(): IState {
    return this._state;
  }

  /** Emitted when the state changed; an equal answer emits nothing. */
  get changed(): ISignal<this, IState> {
    return this._changed;
  }

  /** Emitted after `changed`, once for each kernel whose report changed. */
  get kernelChanged(): ISignal<this, IKernelChange> {
    return this._kernelChanged;
  }

  /**
   * Emitted after `changed` with each event of the server, for facts that the status does not hold.
   */
  get happened(): ISignal<this, IKernelEvent> {
    return this._happened;
  }

  /** Emitted when the stream of events opens or closes. */
  get liveChanged(): ISignal<this, boolean> {
    return this._liveChanged;
  }

  /** Whether the stream of events is open; while it is not, polling finds changes. */
  get isLive(): boolean {
    return this._stream?.isLive ?? false;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Return the last report of a kernel; its identity changes only if its content does. */
  kernel(id: string): IKernel | null {
    return this._state.status?.kernels.find(kernel => kernel.id === id) ?? null;
  }

  /** Seconds between two requests for the status. */
  set intervalSeconds(seconds: number) {
    this._poll.intervalSeconds = seconds;
  }

  /**
   * Keep the state live until the result is disposed. Without watchers the model makes no requests.
   */
  watch(): IDisposable {
    return this._join('watchers');
  }

  /** Keep the state at most 15 s old until the result is disposed, for notifications. */
  waitForNews(): IDisposable {
    return this._join('waiters');
  }

  /** Whether the user dismissed this ended kernel. */
  isDismissed(kernel: IKernel): boolean {
    return kernel.termination !== null && this._dismissed.has(Private.endKey(kernel));
  }

  /** Dismiss an ended kernel, in this browser only. */
  dismiss(kernel: IKernel): void {
    this._dismissed.add([Private.endKey(kernel)]);
    this._changed.emit(this._state);
  }

  /** Ask the server to postpone the end of a kernel. Rejects with a StatusError. */
  async postponeCulling(kernelId: string): Promise<void> {
    await this._source.postponeCulling(kernelId);
    await this.refresh();
  }

  /** Request the status now. Never rejects: a failure is part of the state. */
  async refresh(): Promise<void> {
    await this._poll.refresh();
  }

  /**
   * Request the status now, also without watchers, and wait for an answer to a request that began
   * after this call.
   */
  async readAnew(): Promise<void> {
    await this._poll.askAnew();
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._poll.dispose();
    this._hiding?.dispose();
    this._stream?.close();
    Signal.clearData(this);
  }

  private get _isNeeded(): boolean {
    return this._here.watchers + this._here.waiters > 0;
  }

  private _join(who: 'watchers' | 'waiters'): IDisposable {
    this._here[who] += 1;
    this._arrange();
    void this.refresh();
    return new DisposableDelegate(() => {
      this._here[who] -= 1;
      this._arrange();
    });
  }

  /**
   * Set the polling rate, and open the stream of events after the first answer while the page is
   * visible.
   */
  private _arrange(): void {
    if (this._isDisposed) {
      return;
    }
    this._poll.pace = this._here.watchers > 0 || !this._isNeeded ? 'figures' : this.isLive ? 'live' : 'news';
    this._poll.isHopeless = this._state.problem?.kind === 'not-installed';
    if (this._isNeeded && this._state.status !== null && !this._isAway) {
      this._stream?.open(() => this._poll.askAnew());
    } else {
      this._stream?.close();
    }
  }

  /** Called by the poll, never twice at once. Rejects on failure, so that the poll backs off. */
  private async _ask(): Promise<void> {
    this._heardMeanwhile = [];
    try {
      const text = await this._source.fetchText();
      this._take(text);
    } catch (error) {
      const problem = error instanceof StatusError ? error : new StatusError('server', String(error));
      // A server without the extension has no kernels of ours: the last status is void, not stale.
      const status = problem.kind === 'not-installed' ? null : this._state.status;
      this._replace({ status, problem });
      throw problem;
    }
  }

  /** Skip an answer whose text equals the last one. */
  private _take(text: string): void {
    const { status: before } = this._state;
    if (before === null || text !== this._text) {
      const events = this._heardMeanwhile;
      // An event may have arrived while this answer was on its way, and be newer.
      const status = events.reduce((all, event) => patch(all, event, this._now), readStatus(text, this._trans));
      this._text = events.length > 0 ? '' : text;
      this._replace({ status: share(before, status), problem: null });
    } else if (this._state.problem !== null) {
      this._replace({ status: before, problem: null });
    }
  }

  private _hear(event: IKernelEvent): void {
    const { status, problem } = this._state;
    if (status === null || this._isDisposed) {
      return;
    }
    this._heardMeanwhile.push(event);
    this._text = '';
    this._replace({ status: share(status, patch(status, event, this._now)), problem });
    this._happened.emit(event);
    // Reports of waiting kernels change each second with their figures.
    if (event.kind !== 'queued') {
      this._poll.refreshSoon();
    }
  }

  private _turn(isLive: boolean): void {
    this._arrange();
    if (isLive) {
      this._poll.refreshSoon();
    }
    this._liveChanged.emit(isLive);
  }

  private _hide(): void {
    this._hiding?.dispose();
    this._hiding = this._clock.after(GpuKernelsModel.AWAY_SECONDS * 1000, () => {
      this._isAway = true;
      this._arrange();
    });
  }

  private _comeBack(why: ComeBack): void {
    this._hiding?.dispose();
    if (why !== 'shown') {
      this._stream?.reconnect();
    }
    this._isAway = false;
    this._arrange();
    void this.refresh();
  }

  private get _now(): Date {
    return new Date(this._clock.now());
  }

  private _replace(state: IState): void {
    const before = this._state;
    if (this._isDisposed || Private.isSame(state, before)) {
      return;
    }
    this._state = state;
    if ((state.status === null) !== (before.status === null) || state.problem !== before.problem) {
      this._arrange();
    }
    this._changed.emit(state);
    Private.changes(before.status, state.status).forEach(change => this._kernelChanged.emit(change));
  }

  private readonly _source: IStatusSource;
  private readonly _stream: IEventStream | null;
  private readonly _page: IPage;
  private readonly _clock: IClock;
  private readonly _trans: ITranslation;
  private readonly _poll: StatusPoll;
  private readonly _changed = new Signal<this, IState>(this);
  private readonly _kernelChanged = new Signal<this, IKernelChange>(this);
  private readonly _happened = new Signal<this, IKernelEvent>(this);
  private readonly _liveChanged = new Signal<this, boolean>(this);
  private readonly _dismissed: Remembered;
  private readonly _here = { watchers: 0, waiters: 0 };
  private _state: IState = { status: null, problem: null };
  /** The text of the last answer; empty if events changed the state since. */
  private _text = '';
  private _heardMeanwhile: IKernelEvent[] = [];
  private _hiding: IDisposable | null = null;
  private _isAway = false;
  private _isDisposed = false;
}

export namespace GpuKernelsModel {
  export const DEFAULT_INTERVAL_SECONDS = 2;
  /** A page that is hidden for longer than this closes its stream of events. */
  export const AWAY_SECONDS = 60;

  export interface IOptions {
    source: IStatusSource;
    /** The stream of events; without one the model polls. */
    stream?: IEventStream;
    page?: IPage;
    clock?: IClock;
    trans?: ITranslation;
    intervalSeconds?: number;
    /** Storage for the dismissed kernels; without one they are kept as long as the page. */
    dismissed?: IMemory;
  }
}

namespace Private {
  export function endKey(kernel: IKernel): string {
    return `${kernel.id} ${kernel.termination?.at ?? ''}`;
  }

  export function isSame(a: IState, b: IState): boolean {
    return a.status === b.status && a.problem?.kind === b.problem?.kind && a.problem?.message === b.problem?.message;
  }

  export function changes(before: IStatus | null, after: IStatus | null): IKernelChange[] {
    const was = new Map((before?.kernels ?? []).map(kernel => [kernel.id, kernel]));
    const changed: IKernelChange[] = [];
    for (const kernel of after?.kernels ?? []) {
      if (was.get(kernel.id) !== kernel) {
        changed.push({ id: kernel.id, kernel });
      }
      was.delete(kernel.id);
    }
    return changed.concat([...was.keys()].map(id => ({ id, kernel: null })));
  }
}
