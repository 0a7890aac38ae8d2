// The change of a kernel's size that an administrator requests. Pure.

import { IHolderKernel, ISizeRequest } from '../tokens';

/**
 * Return the fields that differ from the kernel's last report: a field that is left out stays as
 * the gateway has it, even where the report is old.
 */
export function changesOf(
  { gpus, priority }: Pick<IHolderKernel, 'gpus' | 'priority'>,
  wanted: Partial<ISizeRequest>
): Partial<ISizeRequest> {
  return {
    ...(wanted.gpus !== undefined && wanted.gpus !== gpus ? { gpus: wanted.gpus } : {}),
    ...(wanted.memory !== undefined ? { memory: wanted.memory } : {}),
    ...(wanted.priority !== undefined && wanted.priority !== priority ? { priority: wanted.priority } : {})
  };
}
