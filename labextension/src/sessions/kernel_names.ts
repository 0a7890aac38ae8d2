// Renames the kernel of an open document. Lab has no such change: a connection keeps its first
// name, and notebooks, toolbars and status bars read the name only on the signal of another kernel.
// A console clears all its cells on that signal, so that only notebooks get it.

import { ISessionContext } from '@jupyterlab/apputils';
import { Kernel, KernelSpec } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';

/**
 * Rename the kernel of this context, also in its notebook's metadata. Return whether the name changed.
 * `isNotebook`: whether the context is a notebook's.
 */
export function renamed(
  context: ISessionContext,
  name: string,
  known: Pick<KernelSpec.IManager, 'specs'>,
  isNotebook: boolean
): boolean {
  const kernel = context.session?.kernel;
  if (!kernel || kernel.name === name) {
    return false;
  }
  rename(kernel, name, known);
  // With this name a kernel is started in its place, should it end.
  context.kernelPreference = { ...context.kernelPreference, name };
  if (isNotebook) {
    emit(context.kernelChanged, { name: 'kernel', oldValue: kernel, newValue: kernel });
  }
  // Lab's status bar takes the name with that signal, and shows it with this one.
  emit(context.statusChanged, kernel.status);
  return true;
}

/** In the place of the connection's own getters, which read what it was made with. */
function rename(kernel: Kernel.IKernelConnection, name: string, known: Pick<KernelSpec.IManager, 'specs'>): void {
  Object.defineProperties(kernel, {
    name: { configurable: true, get: () => name },
    spec: { configurable: true, get: () => Promise.resolve(known.specs?.kernelspecs[name]) }
  });
}

/**
 * A signal is emitted by its owner alone, says its type; this speaks for the context, which has no
 * cause to.
 */
function emit<T, U>(signal: ISignal<T, U>, args: U): void {
  (signal as Signal<T, U>).emit(args);
}
