// Schedules requests for the status: one at a time, as often as watchers need it, and soon after an
// event.

import { IDisposable } from '@lumino/disposable';
import { IPoll, Poll } from '@lumino/polling';

import { IClock } from '../base/clock';
import { StatusError } from '../tokens';

/** The reason to poll: visible figures, news without a stream of events, or news with one. */
export type Pace = 'figures' | 'news' | 'live';

const SECONDS: Record<Pace, number> = { figures: 0, news: 15, live: 60 };
const LONGEST_BACKOFF_MS = 15000;
/** A server without the extension rarely gets it while the page is open. */
const HOPELESS_BACKOFF_MS = 300000;
/** Events often come together; they cause at most one request a second. */
const SOON_MS = 100;
const BETWEEN_MS = 1000;
/**
 * Relative jitter of each wait: pages that poll in step would wait for each other's answers and
 * stay in step.
 */
const SPREAD = 0.1;

export class StatusPoll implements IDisposable {
  constructor(private readonly _options: StatusPoll.IOptions) {
    this._poll = new Poll<void, StatusError>({
      auto: false,
      factory: () => this._ask(),
      frequency: this._frequency(),
      name: '@jupyter-aliquot/labextension:status',
      standby: () => !_options.isNeeded()
    });
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  /** Seconds between two requests for figures. */
  set intervalSeconds(seconds: number) {
    this._intervalSeconds = seconds;
    this._poll.frequency = this._frequency();
  }

  set pace(pace: Pace) {
    this._pace = pace;
    this._poll.frequency = this._frequency();
  }

  /** Whether the failure is likely to persist. */
  set isHopeless(isHopeless: boolean) {
    this._isHopeless = isHopeless;
    this._poll.frequency = this._frequency();
  }

  /** Request now. If a request is under way, another one follows it. */
  async refresh(): Promise<void> {
    if (this._underWay === null) {
      // Not the poll's own refresh, which may return a request that has just ended.
      await this._poll.schedule({ interval: Poll.IMMEDIATE, phase: 'refreshed' });
    } else {
      this._isOld = true;
    }
  }

  /** Request within a second. */
  refreshSoon(): void {
    const { clock } = this._options;
    const next = Math.max(SOON_MS, this._began + BETWEEN_MS - clock.now());
    this._soon ??= clock.after(next, () => {
      this._soon = null;
      void this.refresh();
    });
  }

  /** Wait for a request that begins after this call. Never rejects. */
  async askAnew(): Promise<void> {
    await this._underWay?.catch(() => undefined);
    await this._ask().catch(() => undefined);
  }

  dispose(): void {
    this._soon?.dispose();
    void this._poll.stop(); // disposing alone would leave its timer
    this._poll.dispose();
  }

  /** Called by the poll. */
  private _ask(): Promise<void> {
    this._underWay ??= this._askUntilNew().finally(() => {
      this._underWay = null;
    });
    return this._underWay;
  }

  private async _askUntilNew(): Promise<void> {
    const { ask, clock, isNeeded } = this._options;
    do {
      this._isOld = false;
      this._began = clock.now();
      this._poll.frequency = this._frequency(); // a new jitter for each wait
      await ask().catch(error => {
        if (!this._isOld) {
          throw error;
        }
      });
    } while (this._isOld && isNeeded());
  }

  private _frequency(): IPoll.Frequency {
    const spread = 1 + SPREAD * (2 * this._options.clock.chance() - 1);
    const interval = Math.round(Math.max(this._intervalSeconds, SECONDS[this._pace]) * 1000 * spread);
    const longest = this._isHopeless && this._pace !== 'figures' ? HOPELESS_BACKOFF_MS : LONGEST_BACKOFF_MS;
    return { interval, backoff: true, max: Math.max(longest, interval) };
  }

  private readonly _poll: Poll<void, StatusError>;
  private _intervalSeconds = 2;
  private _pace: Pace = 'figures';
  private _isHopeless = false;
  private _began = 0;
  private _underWay: Promise<void> | null = null;
  private _isOld = false;
  private _soon: IDisposable | null = null;
}

export namespace StatusPoll {
  export interface IOptions {
    /** Send one request. Rejects on failure. */
    ask: () => Promise<void>;
    /** Whether a visible widget uses the answer. */
    isNeeded: () => boolean;
    clock: IClock;
  }
}
