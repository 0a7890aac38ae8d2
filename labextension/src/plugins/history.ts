// The history page: a command, a place in the palette and the View menu, and its return after a
// reload.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

import { AliquotClient } from '../client/client';
import { IGpuKernels } from '../gpu_kernels';
import { HistoryModel } from '../history/history_model';
import { Range } from '../history/history_series';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { HistoryPage } from '../widgets/history/history';
import { historyIcon } from '../widgets/elements/icons';

const NAMESPACE = 'aliquot-history';

export const history = (
  app: JupyterFrontEnd,
  { client }: IGpuKernels,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const tracker = new WidgetTracker<MainAreaWidget<HistoryPage>>({ namespace: NAMESPACE });
  const command = CommandIDs.history;
  app.commands.addCommand(command, {
    label: args => (args.isPalette ? trans.__('Show GPU History') : trans.__('GPU History')),
    caption: trans.__('Show who used which GPU over the last hour, day or week'),
    icon: args => (args.isPalette ? undefined : historyIcon),
    describedBy: { args: { type: 'object', properties: { isPalette: { type: 'boolean' } } } },
    execute: async () => {
      const widget = tracker.currentWidget ?? page(client, trans);
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

function page(client: AliquotClient, trans: TranslationBundle): MainAreaWidget<HistoryPage> {
  const content = new HistoryPage(new HistoryModel(client), trans, range => download(client, range));
  const widget = new MainAreaWidget({ content });
  // The area has one accessible name for all content.
  content.node.setAttribute('aria-label', trans.__('GPU history'));
  widget.id = NAMESPACE;
  widget.title.label = trans.__('GPU History');
  widget.title.icon = historyIcon;
  widget.title.closable = true;
  widget.toolbar.hide();
  return widget;
}

/** Download with Lab's credentials, which a link would not send. Rejects with a StatusError. */
async function download(client: AliquotClient, range: Range): Promise<void> {
  const url = URL.createObjectURL(new Blob([await client.historyCsv(range)], { type: 'text/csv' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = `aliquot-${range}.csv`;
  link.click();
  URL.revokeObjectURL(url);
}
