// Time and randomness, passed in to modules that wait: the browser's here, scripted in tests.

import { DisposableDelegate, IDisposable } from '@lumino/disposable';

export interface IClock {
  /** Milliseconds of the wall clock, which goes on while a laptop sleeps. */
  now(): number;
  /**
   * Call once after so many milliseconds, or when the machine wakes later, unless disposed before.
   */
  after(milliseconds: number, call: () => void): IDisposable;
  /** A random number from 0 to 1, so that many pages do not act at once. */
  chance(): number;
}

export const BROWSER_CLOCK: IClock = {
  now: () => Date.now(),
  after: (milliseconds, call) => {
    const timer = setTimeout(call, milliseconds);
    return new DisposableDelegate(() => clearTimeout(timer));
  },
  chance: () => Math.random()
};
