// Texts in the browser's local storage.

import { IMemory } from '../tokens';

/** Return the stored text under a key as `IMemory`; without local storage nothing is kept. */
export function storage(key: string): IMemory {
  return {
    get: () => {
      try {
        return window.localStorage.getItem(key);
      } catch {
        return null;
      }
    },
    set: text => {
      try {
        window.localStorage.setItem(key, text);
      } catch (error) {
        console.warn('aliquot: the browser keeps nothing, so that things may be told twice.', error);
      }
    }
  };
}
