// What the history page knows: the last answer for the range that is looked at, and what went wrong since. No DOM.

import { IDisposable } from '@lumino/disposable';
import { IPoll, Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { Range } from './history_series';
import { IHistory, StatusError } from '../tokens';

export interface IHistoryState {
  readonly range: Range;
  /** Null while it is being read. Of this range. */
  readonly history: IHistory | null;
  /** Why the last request failed. With a history beside it, that history is old. */
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

  /** Whether somebody looks. Nobody looking means no requests. */
  set isWatched(isWatched: boolean) {
    this._isWatched = isWatched;
    if (isWatched && !this.isDisposed) {
      void this._poll.refresh();
    }
  }

  /** Another range; what is known of the one before is not shown for it. */
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
      // A poll that is disposed keeps its timer; one that is stopped has none.
      void this._poll.stop().finally(() => this._poll.dispose());
      Signal.clearData(this);
    }
  }

  /** Rejects on failure, so that the poll backs off. An answer for a range that was left meanwhile is dropped. */
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

  /** As often as there is a new step, but the last one grows meanwhile. */
  export function frequency(stepSeconds: number): IPoll.Frequency {
    const interval = 1000 * Math.min(Math.max(stepSeconds, 2), LONGEST_SECONDS);
    return { interval, backoff: true, max: 4 * interval };
  }
}
