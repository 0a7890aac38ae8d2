// The page of folders that users share. Its code is loaded when it is opened.

import { folderIcon } from '@jupyterlab/ui-components';

import { CommandIDs } from '../tokens';
import { commandPage } from './command_page';

export const sharedFolders = commandPage((trans, { client, model }) => ({
  id: 'aliquot-shared-folders',
  command: CommandIDs.sharedFolders,
  title: trans.__('Shared Folders'),
  show: trans.__('Show Shared Folders'),
  caption: trans.__('Share folders with the kernels of other users, and accept theirs'),
  name: trans.__('Shared folders'),
  icon: folderIcon,
  content: async () => {
    const { FoldersArea } = await import('../widgets/folders/folders_area');
    return new FoldersArea({ source: client, trans, onAnswered: () => void model.readAnew() });
  }
}));
