// Time and chance, as the modules that wait are given them: the browser's here, a script's in tests.

import { DisposableDelegate, IDisposable } from '@lumino/disposable';

export interface IClock {
  /** Milliseconds of the wall clock, which goes on while a laptop sleeps. */
  now(): number;
  /** Calls once, after so many milliseconds or when there is time again, unless disposed before. */
  after(milliseconds: number, call: () => void): IDisposable;
  /** From 0 to 1, so that many pages do not all come at once. */
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
