// Finds the session contexts of this page's documents and consoles.

import { ISessionContext } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

interface IWithSession {
  readonly sessionContext?: ISessionContext;
  readonly context?: { readonly sessionContext?: ISessionContext };
}

/** The session of the document at a path of the server, where it is open among these widgets. */
export function contextAt(widgets: Iterable<Widget>, path: string): ISessionContext | null {
  return contextWhere(widgets, context => context.path === path);
}

/** The session of a document or console among these widgets that has this kernel. */
export function contextOf(widgets: Iterable<Widget>, kernelId: string): ISessionContext | null {
  return contextWhere(widgets, context => context.session?.kernel?.id === kernelId);
}

function contextWhere(
  widgets: Iterable<Widget>,
  isIt: (context: ISessionContext) => boolean
): ISessionContext | null {
  for (const context of contextsOf(widgets)) {
    if (isIt(context)) {
      return context;
    }
  }
  return null;
}

/** The sessions of the documents and consoles among these widgets. */
export function* contextsOf(widgets: Iterable<Widget>): Iterable<ISessionContext> {
  for (const [, context] of withContexts(widgets)) {
    yield context;
  }
}

/** The documents and consoles among these widgets, with their sessions. */
export function* withContexts(widgets: Iterable<Widget>): Iterable<[Widget, ISessionContext]> {
  for (const widget of widgets) {
    const shown: Widget & IWithSession = widget;
    const context = shown.sessionContext ?? shown.context?.sessionContext;
    if (context) {
      yield [widget, context];
    }
  }
}

/** Show the name of its kernel in the toolbar of this document or console. */
export function showKernelName(widget: Widget): void {
  const { toolbar }: Widget & { readonly toolbar?: Widget } = widget;
  for (const item of toolbar?.children() ?? []) {
    if (item.hasClass('jp-KernelName')) {
      item.update();
    }
  }
}
