// What this page knows: the last status, what events have changed in it since, and what went wrong. Asks for figures
// while somebody watches, and rarely while somebody waits for news. No DOM.

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

/** A snapshot: replaced as a whole, never changed. Both null: nothing was answered yet. */
export interface IState {
  readonly status: IStatus | null;
  /** Why the last request failed. With a status beside it, that status is stale. */
  readonly problem: StatusError | null;
}

/** A kernel that is another than before; null where it is not known any more. */
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

  /** Between two states, the kernels and devices that are equal are the same objects. */
  get state(): IState {
    return this._state;
  }

  /** Emitted when the state was replaced by a different one; an equal answer is silent. */
  get changed(): ISignal<this, IState> {
    return this._changed;
  }

  /** After `changed`, once for each kernel that is another than before. */
  get kernelChanged(): ISignal<this, IKernelChange> {
    return this._kernelChanged;
  }

  /** After `changed`, each event as it was told: for what the status does not say. */
  get happened(): ISignal<this, IKernelEvent> {
    return this._happened;
  }

  /** Emitted when changes begin, or cease, to be told at once. */
  get liveChanged(): ISignal<this, boolean> {
    return this._liveChanged;
  }

  /** Whether changes are told at once; while they are not, they are found by asking. */
  get isLive(): boolean {
    return this._stream?.isLive ?? false;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** A kernel as it was last told of: the same object until it is another. */
  kernel(id: string): IKernel | null {
    return this._state.status?.kernels.find(kernel => kernel.id === id) ?? null;
  }

  /** Seconds between two requests. */
  set intervalSeconds(seconds: number) {
    this._poll.intervalSeconds = seconds;
  }

  /** Keeps the state live until the result is disposed. Nobody watching means no requests. */
  watch(): IDisposable {
    return this._join('watchers');
  }

  /** Keeps the state no older than a quarter of a minute, for who is told of what happens. */
  waitForNews(): IDisposable {
    return this._join('waiters');
  }

  /** Whether the user has put this ended kernel away. */
  isDismissed(kernel: IKernel): boolean {
    return kernel.termination !== null && this._dismissed.has(Private.endKey(kernel));
  }

  /** Puts an ended kernel away, in this browser. */
  dismiss(kernel: IKernel): void {
    this._dismissed.add([Private.endKey(kernel)]);
    this._changed.emit(this._state);
  }

  /** Asks the server to keep a kernel that would be ended. Rejects with a StatusError. */
  async postponeCulling(kernelId: string): Promise<void> {
    await this._source.postponeCulling(kernelId);
    await this.refresh();
  }

  /** Asks without waiting for the interval to end. Never rejects: a failure is part of the state. */
  async refresh(): Promise<void> {
    await this._poll.refresh();
  }

  /** The same, awaited until a request that began after now is answered, or failed. Whether anybody watches or not. */
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

  /** How often is asked, and whether events are heard: they are, from the first answer, while somebody is here. */
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

  /** Called by the poll, one at a time. Rejects on failure, so that it backs off. */
  private async _ask(): Promise<void> {
    this._heardMeanwhile = [];
    try {
      const text = await this._source.fetchText();
      this._take(text);
    } catch (error) {
      const problem = error instanceof StatusError ? error : new StatusError('server', String(error));
      // A server without the extension has no kernels of ours: what was shown before is not stale but gone.
      const status = problem.kind === 'not-installed' ? null : this._state.status;
      this._replace({ status, problem });
      throw problem;
    }
  }

  /** An answer that is written as the last one says nothing new, and is not read. */
  private _take(text: string): void {
    const { status: before } = this._state;
    if (before === null || text !== this._text) {
      const events = this._heardMeanwhile;
      // An answer may be older than what was heard while it was on its way.
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
    // Who waits is told of once in a second, with all that there is to know.
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
  /** The last answer; empty where events have changed the state since. */
  private _text = '';
  private _heardMeanwhile: IKernelEvent[] = [];
  private _hiding: IDisposable | null = null;
  private _isAway = false;
  private _isDisposed = false;
}

export namespace GpuKernelsModel {
  export const DEFAULT_INTERVAL_SECONDS = 2;
  /** Who is hidden for longer hears of nothing until they are back. */
  export const AWAY_SECONDS = 60;

  export interface IOptions {
    source: IStatusSource;
    /** Where changes are heard of; if not given, they are found by asking. */
    stream?: IEventStream;
    page?: IPage;
    clock?: IClock;
    trans?: ITranslation;
    intervalSeconds?: number;
    /** Where it is kept which ended kernels were put away; if not given, until the page is left. */
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
