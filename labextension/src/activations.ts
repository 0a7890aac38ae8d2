// The activation of each plugin, in one chunk that Lab's first paint need not wait for, with the style sheets:
// Lab does not start before it has those of package.json's "styleModule".

import '../style/index.js';

export { administration } from './plugins/administration';
export { history } from './plugins/history';
export { kernelCommands } from './plugins/kernel_commands';
export { kernels } from './plugins/kernels';
export { cellExecutor } from './plugins/notebook/cell_executor';
export { cellWaits } from './plugins/notebook/cell_waits';
export { comingBack } from './plugins/notebook/coming_back';
export { kernelNames } from './plugins/notebook/kernel_names';
export { lostCells } from './plugins/notebook/lost_cells';
export { missingSize } from './plugins/notebook/missing_size';
export { prefetch } from './plugins/notebook/prefetch';
export { reviving } from './plugins/notebook/reviving';
export { sizedNotebooks } from './plugins/notebook/sized_notebooks';
export { toolbar } from './plugins/notebook/toolbar';
export { notifications } from './plugins/notifications';
export { panel } from './plugins/panel';
export { picker } from './plugins/picker';
export { running } from './plugins/running';
export { sharedFolders } from './plugins/shared_folders';
export { statusBar } from './plugins/status_bar';
export { usage } from './plugins/usage';
