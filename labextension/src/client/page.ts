// Whether the page is visible, and when it returns: shown again, online again, or awake after a
// sleep.

import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { BROWSER_CLOCK, IClock } from '../base/clock';

/** The way in which the page returned. */
export type ComeBack = 'shown' | 'online' | 'awake';

/** The visibility of a page; scripted in tests. */
export interface IPage {
  readonly isHidden: boolean;
  /** Emitted when the page is hidden. */
  readonly hid: ISignal<IPage, void>;
  /** Emitted when the state may be stale and connections may be dead without a close event. */
  readonly cameBack: ISignal<IPage, ComeBack>;
}

const LOOK_MS = 5000;
/** A timer that is later than this means that the machine slept. */
const SLEPT_MS = 15000;
/** Hidden pages have slow timers, so that their delay does not show a sleep. */
const LONG_HIDDEN_MS = 120000;

/** The browser's page. */
export class BrowserPage implements IPage, IDisposable {
  constructor(private readonly _clock: IClock = BROWSER_CLOCK) {
    document.addEventListener('visibilitychange', this._turn);
    window.addEventListener('online', this._return);
    this._lookAgain();
  }

  get isHidden(): boolean {
    return document.hidden;
  }

  readonly hid: Signal<IPage, void> = new Signal<IPage, void>(this);
  readonly cameBack: Signal<IPage, ComeBack> = new Signal<IPage, ComeBack>(this);

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._timer?.dispose();
    document.removeEventListener('visibilitychange', this._turn);
    window.removeEventListener('online', this._return);
    Signal.clearData(this);
  }

  private readonly _turn = (): void => {
    if (document.hidden) {
      this._hidAt = this._clock.now();
      this.hid.emit();
    } else {
      this.cameBack.emit(this._clock.now() - this._hidAt > LONG_HIDDEN_MS ? 'awake' : 'shown');
    }
  };
  private readonly _return = (): void => this.cameBack.emit('online');

  /** Ignore late timers of a hidden page; its return is emitted when it is shown. */
  private _lookAgain(): void {
    const began = this._clock.now();
    this._timer = this._clock.after(LOOK_MS, () => {
      if (!document.hidden && this._clock.now() - began > LOOK_MS + SLEPT_MS) {
        this.cameBack.emit('awake');
      }
      this._lookAgain();
    });
  }

  private _hidAt = 0;
  private _timer: IDisposable | null = null;
  private _isDisposed = false;
}

/** A page that is always visible, for programs without one. */
export class NoPage implements IPage {
  readonly isHidden = false;
  readonly hid: Signal<IPage, void> = new Signal<IPage, void>(this);
  readonly cameBack: Signal<IPage, ComeBack> = new Signal<IPage, ComeBack>(this);
}
