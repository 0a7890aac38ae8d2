// React's way to the model: a component is drawn again when what it picked is another object, and only then.

import * as React from 'react';

import { GpuKernelsModel, IState } from '../../model/model';
import { IKernel } from '../../tokens';

/** What `pick` takes of the state. It must give the same for the same state: no new lists or objects. */
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

/** A kernel as it was last told of, or null. */
export function useKernel(model: GpuKernelsModel, id: string): IKernel | null {
  return usePicked(model, () => model.kernel(id));
}

/** Whether changes are told at once. */
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
