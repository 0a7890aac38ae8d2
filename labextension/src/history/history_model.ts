// The state of the history page: the last answer for the chosen range, and the last error. No DOM.

import { IDisposable } from '@lumino/disposable';
import { IPoll, Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Range } from './history_series';
import { IHistory, StatusError } from '../tokens';

export interface IHistoryState {
  readonly range: Range;
  /** The answer for this range; null until it arrives. */
  readonly history: IHistory | null;
  /** The error of the last request, if it failed; a history beside it is stale. */
  readonly problem: StatusError | null;
}

/** Where the history comes from: the client in Lab, a script in tests. */
export interface IHistorySource {
  history(range: Range): Promise<IHistory>;
}

export class HistoryModel implements IDisposable {
  constructor(private readonly _source: IHistorySource) {
    this._poll = new Poll<void, StatusError>({
      auto: false,
      factory: () => this._ask(),
      frequency: Private.frequency(10),
      name: '@jupyter-aliquot/labextension:history',
      standby: () => (this._isWatched ? 'when-hidden' : true)
    });
  }

  get state(): IHistoryState {
    return this._state;
  }

  get changed(): ISignal<this, IHistoryState> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Whether the page is visible; while it is not, the model makes no requests. */
  set isWatched(isWatched: boolean) {
    this._isWatched = isWatched;
    if (isWatched && !this.isDisposed) {
      void this._poll.refresh();
    }
  }

  /** Choose another range and drop the answer for the one before. */
  set range(range: Range) {
    if (range !== this._state.range) {
      this._put({ range, history: null, problem: null });
      void this._poll.refresh();
    }
  }

  async refresh(): Promise<void> {
    await this._poll.refresh();
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      // dispose() alone would leave the poll's timer; stop() ends it.
      void this._poll.stop().finally(() => this._poll.dispose());
      Signal.clearData(this);
    }
  }

  /**
   * Rejects on failure, so that the poll backs off. Drops an answer for a range that is not chosen
   * any more.
   */
  private async _ask(): Promise<void> {
    for (let isDone = false; !isDone && !this.isDisposed; ) {
      const { range } = this._state;
      const found = await this._source.history(range).catch(Private.problemOf);
      isDone = range === this._state.range;
      if (isDone && found instanceof StatusError) {
        this._put({ ...this._state, problem: found });
        throw found;
      }
      if (isDone && !(found instanceof StatusError)) {
        this._put({ range, history: found, problem: null });
        this._poll.frequency = Private.frequency(found.step_seconds);
      }
    }
  }

  private _put(state: IHistoryState): void {
    if (!this.isDisposed) {
      this._state = state;
      this._changed.emit(state);
    }
  }

  private _state: IHistoryState = { range: 'hour', history: null, problem: null };
  private _isWatched = false;
  private _isDisposed = false;
  private readonly _poll: Poll<void, StatusError>;
  private readonly _changed = new Signal<this, IHistoryState>(this);
}

namespace Private {
  const LONGEST_SECONDS = 60;

  export function problemOf(error: unknown): StatusError {
    return error instanceof StatusError ? error : new StatusError('server', String(error));
  }

  /** The polling interval: a step's length at most, since the last step grows meanwhile. */
  export function frequency(stepSeconds: number): IPoll.Frequency {
    const interval = 1000 * Math.min(Math.max(stepSeconds, 2), LONGEST_SECONDS);
    return { interval, backoff: true, max: 4 * interval };
  }
}
