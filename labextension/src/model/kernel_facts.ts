// Facts derived from a kernel's report: its title, its notebook, and why a limit is not enforced.
// Pure.

import { IKernel, IStatus } from '../tokens';

/** Split kernels into live ones and ended ones. */
export function divide(kernels: readonly IKernel[]): { live: IKernel[]; ended: IKernel[] } {
  const isOver = (kernel: IKernel): boolean => kernel.state === 'ended' && kernel.termination !== null;
  return { live: kernels.filter(kernel => !isOver(kernel)), ended: kernels.filter(isOver) };
}

/**
 * The path of the notebook to open for a kernel of this user; null if its label is no path or
 * another user owns it.
 */
export function notebookPath(kernel: IKernel, status: IStatus): string | null {
  const isPath = /\.ipynb$/i.test(kernel.label) && !kernel.label.startsWith('/');
  return isPath && kernel.owner === status.user.name ? kernel.label : null;
}

/** A kernel's title: the file name of its notebook, else its label, its kernelspec or its id. */
export function kernelTitle(kernel: IKernel): string {
  const label = kernel.label.trim();
  return (/\.ipynb$/i.test(label) ? label.split('/').pop() : label) || kernel.name || kernel.id.slice(0, 8);
}

/**
 * The self-check's reason why the limit is not enforced in a kernel; null if it is, or is not known
 * yet.
 */
export function interceptionFailure(kernel: IKernel): string | null {
  const match = /^failed(?::\s*(.*))?$/s.exec(kernel.interception);
  return match ? match[1] || 'the self-check failed' : null;
}

/**
 * The reason why the node's enforcer could not set a kernel's limits; null if it could, or has not
 * tried yet.
 */
export function enforcementFailure(kernel: IKernel): string | null {
  const match = /^failed:\s*(.*)$/s.exec(kernel.enforcement);
  return match?.[1] ?? null;
}
