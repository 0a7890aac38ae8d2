// Finds notebooks that get no new kernel after a reload because their GPU kernel was shut down on
// purpose. Pure.

import { IKernel } from '../tokens';

/** Termination codes that are intended: by the user, an administrator or a policy. */
const INTENDED: readonly string[] = ['user', 'withdrawn', 'culled'];

/** The user's last kernel for this notebook, if it had a GPU and was shut down; else null. */
export function shutDownKernel(kernels: readonly IKernel[], user: string, path: string): IKernel | null {
  const endOf = (kernel: IKernel): number => Date.parse(kernel.termination?.at ?? '');
  const ended = kernels.filter(kernel => kernel.termination !== null && kernel.owner === user && kernel.label === path);
  const last = ended.sort((one, other) => endOf(other) - endOf(one))[0];
  return last && last.gpus > 0 && INTENDED.includes(last.termination?.code ?? '') ? last : null;
}
