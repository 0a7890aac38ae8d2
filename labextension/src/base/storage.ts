// Texts in the browser's storage. Knows no DOM but that.

import { IMemory } from '../tokens';

/** A text in the browser's storage; a browser that has none forgets. */
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
