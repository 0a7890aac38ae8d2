// Which notebook gets no kernel when its page comes back: one whose GPU kernel was shut down on purpose. Pure.

import { IKernel } from '../tokens';

/** Ends after which the GPU is free by intent: its user's, an administrator's, or a rule's. */
const INTENDED: readonly string[] = ['user', 'withdrawn', 'culled'];

/** The last of a user's kernels for this notebook, where it had a GPU and was shut down; else null. */
export function shutDownKernel(kernels: readonly IKernel[], user: string, path: string): IKernel | null {
  const endOf = (kernel: IKernel): number => Date.parse(kernel.termination?.at ?? '');
  const ended = kernels.filter(kernel => kernel.termination !== null && kernel.owner === user && kernel.label === path);
  const last = ended.sort((one, other) => endOf(other) - endOf(one))[0];
  return last && last.gpus > 0 && INTENDED.includes(last.termination?.reason ?? '') ? last : null;
}
