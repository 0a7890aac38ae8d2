// The history page: who used which GPU when.

import { AliquotClient } from '../client/client';
import { HistoryModel } from '../history/history_model';
import { Range } from '../history/history_series';
import { CommandIDs } from '../tokens';
import { historyIcon } from '../widgets/elements/icons';
import { HistoryPage } from '../widgets/history/history';
import { commandPage } from './command_page';

export const history = commandPage((trans, { client }) => ({
  id: 'aliquot-history',
  command: CommandIDs.history,
  title: trans.__('GPU History'),
  show: trans.__('Show GPU History'),
  caption: trans.__('Show who used which GPU over the last hour, day or week'),
  name: trans.__('GPU history'),
  icon: historyIcon,
  content: () => new HistoryPage(new HistoryModel(client), trans, range => download(client, range))
}));

/** Download with Lab's credentials, which a link would not send. Rejects with a StatusError. */
async function download(client: AliquotClient, range: Range): Promise<void> {
  const url = URL.createObjectURL(new Blob([await client.historyCsv(range)], { type: 'text/csv' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = `aliquot-${range}.csv`;
  link.click();
  URL.revokeObjectURL(url);
}
