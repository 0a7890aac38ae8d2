// The state of the administrator's view: the last reports, and the last error. It makes requests
// while the view is visible, one after the other, and more slowly while they fail. No DOM.

import { IDisposable } from '@lumino/disposable';

import { BROWSER_CLOCK, IClock } from '../base/clock';
import { IAdminSource } from './admin_source';
import { IHolders, IQueue, IQuota } from '../tokens';

/** An immutable snapshot; the reports are null until the first answer. */
export interface IAdminState {
  readonly holders: IHolders | null;
  readonly queue: IQueue | null;
  readonly quota: IQuota | null;
  /** The error of the last requests, if they failed; reports beside it are stale. */
  readonly problem: string | null;
}

export class AdminModel implements IDisposable {
  constructor(
    readonly source: IAdminSource,
    private readonly _clock: IClock = BROWSER_CLOCK
  ) {}

  get state(): IAdminState {
    return this._state;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Call back after each change of the state; the result ends that. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  };

  /** Whether the view is visible; while it is not, the model makes no requests. */
  set isWatched(isWatched: boolean) {
    if (isWatched !== this._isWatched) {
      this._isWatched = isWatched;
      this._timer?.dispose();
      this._timer = null;
      if (isWatched) {
        void this.refresh();
      }
    }
  }

  /** Request all reports now. Never rejects: a failure is part of the state. */
  async refresh(): Promise<void> {
    this._timer?.dispose();
    this._timer = null;
    const round = ++this._round;
    const { source } = this;
    try {
      const [holders, queue, quota] = await Promise.all([source.holders(), source.queue(), source.quota()]);
      this._failures = 0;
      this._put(round, { holders, queue, quota, problem: null });
    } catch (error) {
      this._failures += 1;
      this._put(round, { ...this._state, problem: error instanceof Error ? error.message : String(error) });
    }
    if (round === this._round && this._isWatched && !this._isDisposed) {
      const seconds = Math.min(AdminModel.SECONDS * 2 ** this._failures, AdminModel.MOST_SECONDS);
      this._timer = this._clock.after(seconds * 1000, () => void this.refresh());
    }
  }

  dispose(): void {
    this._isDisposed = true;
    this._timer?.dispose();
    this._listeners.clear();
  }

  /** An answer that a later request has overtaken is dropped. */
  private _put(round: number, state: IAdminState): void {
    if (round === this._round && !this._isDisposed) {
      this._state = state;
      this._listeners.forEach(listener => listener());
    }
  }

  private readonly _listeners = new Set<() => void>();
  private _state: IAdminState = { holders: null, queue: null, quota: null, problem: null };
  private _timer: IDisposable | null = null;
  private _round = 0;
  private _failures = 0;
  private _isWatched = false;
  private _isDisposed = false;
}

export namespace AdminModel {
  /** Between two looks; after failures twice as long each time. */
  export const SECONDS = 3;
  export const MOST_SECONDS = 60;
}
