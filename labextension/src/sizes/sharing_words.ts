// What a user loses, or keeps, by the memory of a size. The server counts kernels and measures the time.

import { TranslationBundle } from '@jupyterlab/translation';

import { IDryRun } from '../tokens';

/**
 * `shares memory with 2 idle kernels; about 1.2 s to restore`, or `keeps its memory`; null where
 * neither is to be told. The server counts and measures.
 */
export function sharingText({ memory_sharing: sharing, keeps_memory: keeps }: IDryRun, trans: TranslationBundle): string | null {
  if (keeps) {
    return trans.__('keeps its memory on the GPU');
  }
  if (!sharing) {
    return null;
  }
  const { idle_kernels: idle, busy_kernels: busy, restore_seconds: seconds } = sharing;
  const shares =
    idle > 0 && busy > 0
      ? trans.__('shares memory with %1 idle and %2 busy kernels', String(idle), String(busy))
      : busy > 0
        ? trans._n('shares memory with %1 busy kernel', 'shares memory with %1 busy kernels', busy)
        : trans._n('shares memory with %1 idle kernel', 'shares memory with %1 idle kernels', idle);
  return seconds === null ? shares : trans.__('%1; about %2 s to restore', shares, String(seconds));
}
