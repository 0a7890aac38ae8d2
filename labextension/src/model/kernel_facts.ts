// What a kernel's figures mean: what it is called, whose it is, why a limit does not hold. Pure.

import { IKernel, IStatus } from '../tokens';

/** Those that still hold or wait for something, and those that are no more, which have their reason. */
export function divide(kernels: readonly IKernel[]): { live: IKernel[]; ended: IKernel[] } {
  const isOver = (kernel: IKernel): boolean => kernel.state === 'ended' && kernel.termination !== null;
  return { live: kernels.filter(kernel => !isOver(kernel)), ended: kernels.filter(isOver) };
}

/** The path of the notebook to open for a kernel of this user; null where its label is no path, or not theirs. */
export function notebookPath(kernel: IKernel, status: IStatus): string | null {
  const isPath = /\.ipynb$/i.test(kernel.label) && !kernel.label.startsWith('/');
  return isPath && kernel.owner === status.user.name ? kernel.label : null;
}

/** What to call a kernel: its notebook's file name, its label, its kernelspec, or for want of these its id. */
export function kernelTitle(kernel: IKernel): string {
  const label = kernel.label.trim();
  return (/\.ipynb$/i.test(label) ? label.split('/').pop() : label) || kernel.name || kernel.id.slice(0, 8);
}

/** Why the quota does not hold in a kernel, in the self-check's words; null where it holds or is not known yet. */
export function interceptionFailure(kernel: IKernel): string | null {
  const match = /^failed(?::\s*(.*))?$/s.exec(kernel.interception);
  return match ? match[1] || 'the self-check failed' : null;
}

/** Why the node's enforcer could not set a kernel's limits; null where it could, or is about to. */
export function enforcementFailure(kernel: IKernel): string | null {
  const match = /^failed:\s*(.*)$/s.exec(kernel.enforcement);
  return match?.[1] ?? null;
}
