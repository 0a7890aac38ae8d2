// Which documents and consoles of this page have which session.

import { ISessionContext } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

interface IWithSession {
  readonly sessionContext?: ISessionContext;
  readonly context?: { readonly sessionContext?: ISessionContext };
}

/** The session of the document at a path of the server, where it is open among these widgets. */
export function contextAt(widgets: Iterable<Widget>, path: string): ISessionContext | null {
  for (const widget of widgets) {
    const shown: Widget & IWithSession = widget;
    const context = shown.sessionContext ?? shown.context?.sessionContext;
    if (context?.path === path) {
      return context;
    }
  }
  return null;
}
