// The page of GPU-hours. Users see their own; its code is loaded when it is opened.

import { CommandIDs } from '../tokens';
import { historyIcon } from '../widgets/elements/icons';
import { commandPage } from './command_page';

export const usage = commandPage((trans, { client }) => ({
  id: 'aliquot-usage',
  command: CommandIDs.usage,
  title: trans.__('GPU-Hours'),
  show: trans.__('Show GPU-Hours'),
  caption: trans.__('Show the GPU-hours of a month by user, team, size, model or day'),
  name: trans.__('GPU-hours'),
  icon: historyIcon,
  content: async () => {
    const { UsageArea } = await import('../widgets/usage/usage_area');
    return new UsageArea(client, trans);
  }
}));
