// The page of folders that users share: a command, a place in the palette and the View menu, and its
// return after a reload. Its code is loaded when it is opened for the first time.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { folderIcon } from '@jupyterlab/ui-components';

import { AliquotClient } from '../client/client';
import { IGpuKernels } from '../gpu_kernels';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';

const NAMESPACE = 'aliquot-shared-folders';

export const sharedFolders = (
  app: JupyterFrontEnd,
  { client }: IGpuKernels,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const tracker = new WidgetTracker<MainAreaWidget>({ namespace: NAMESPACE });
  const command = CommandIDs.sharedFolders;
  app.commands.addCommand(command, {
    label: args => (args.isPalette ? trans.__('Show Shared Folders') : trans.__('Shared Folders')),
    caption: trans.__('Share folders with the kernels of other users, and accept theirs'),
    icon: args => (args.isPalette ? undefined : folderIcon),
    describedBy: { args: { type: 'object', properties: { isPalette: { type: 'boolean' } } } },
    execute: async () => {
      const widget = tracker.currentWidget ?? (await area(client, trans));
      if (!widget.isAttached) {
        await tracker.add(widget);
        app.shell.add(widget, 'main');
      }
      app.shell.activateById(widget.id);
    }
  });
  palette?.addItem({ command, category: trans.__('View'), args: { isPalette: true } });
  void restorer?.restore(tracker, { command, name: () => NAMESPACE });
};

async function area(client: AliquotClient, trans: TranslationBundle): Promise<MainAreaWidget> {
  const { FoldersArea } = await import('../widgets/folders/folders_area');
  const content = new FoldersArea(client, trans);
  const widget = new MainAreaWidget({ content });
  // The area has one accessible name for all content.
  content.node.setAttribute('aria-label', trans.__('Shared folders'));
  widget.id = NAMESPACE;
  widget.title.label = trans.__('Shared Folders');
  widget.title.icon = folderIcon;
  widget.title.closable = true;
  widget.toolbar.hide();
  return widget;
}
