// The page of GPU-hours: a command, a place in the palette and the View menu, and its return after
// a reload. Users see their own; its code is loaded when it is opened for the first time.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { AliquotClient } from '../client/client';
import { IGpuKernels } from '../gpu_kernels';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { historyIcon } from '../widgets/elements/icons';

const NAMESPACE = 'aliquot-usage';

export const usage = (
  app: JupyterFrontEnd,
  { client }: IGpuKernels,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const tracker = new WidgetTracker<MainAreaWidget>({ namespace: NAMESPACE });
  const command = CommandIDs.usage;
  app.commands.addCommand(command, {
    label: args => (args.isPalette ? trans.__('Show GPU-Hours') : trans.__('GPU-Hours')),
    caption: trans.__('Show the GPU-hours of a month by user, team, size, model or day'),
    icon: args => (args.isPalette ? undefined : historyIcon),
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
  const { UsageArea } = await import('../widgets/usage/usage_area');
  const content = new UsageArea(client, trans);
  const widget = new MainAreaWidget({ content });
  // The area has one accessible name for all content.
  content.node.setAttribute('aria-label', trans.__('GPU-hours'));
  widget.id = NAMESPACE;
  widget.title.label = trans.__('GPU-Hours');
  widget.title.icon = historyIcon;
  widget.title.closable = true;
  widget.toolbar.hide();
  return widget;
}
