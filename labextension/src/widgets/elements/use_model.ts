// React hooks on the model: a component renders again only if the object that it picked has a new
// identity.

import * as React from 'react';

import { GpuKernelsModel, IState } from '../../model/model';
import { IKernel } from '../../tokens';

/**
 * Return `pick` of the state. It must return the same object for the same state, never a new list
 * or object.
 */
export function usePicked<T>(model: GpuKernelsModel, pick: (state: IState) => T): T {
  const subscribe = React.useCallback(
    (look: () => void) => {
      model.changed.connect(look);
      return () => void model.changed.disconnect(look);
    },
    [model]
  );
  return React.useSyncExternalStore(subscribe, () => pick(model.state));
}

/** Return the last report of a kernel, or null. */
export function useKernel(model: GpuKernelsModel, id: string): IKernel | null {
  return usePicked(model, () => model.kernel(id));
}

/** Return whether the stream of events is open. */
export function useIsLive(model: GpuKernelsModel): boolean {
  const subscribe = React.useCallback(
    (look: () => void) => {
      model.liveChanged.connect(look);
      return () => void model.liveChanged.disconnect(look);
    },
    [model]
  );
  return React.useSyncExternalStore(subscribe, () => model.isLive);
}
