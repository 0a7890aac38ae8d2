// All our plugins. Registration only: what each does is in its own file.

import { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ServiceManagerPlugin } from '@jupyterlab/services';

import { administration } from './plugins/administration';
import { cellExecutor } from './plugins/notebook/cell_executor';
import { cellWaits } from './plugins/notebook/cell_waits';
import { comingBack } from './plugins/notebook/coming_back';
import { history } from './plugins/history';
import { kernelCommands } from './plugins/kernel_commands';
import { kernelNames } from './plugins/notebook/kernel_names';
import { kernelSpecs } from './plugins/kernel_specs';
import { kernels } from './plugins/kernels';
import { lostCells } from './plugins/notebook/lost_cells';
import { missingSize } from './plugins/notebook/missing_size';
import { notifications } from './plugins/notifications';
import { panel } from './plugins/panel';
import { picker } from './plugins/picker';
import { running } from './plugins/running';
import { reviving } from './plugins/notebook/reviving';
import { sharedFolders } from './plugins/shared_folders';
import { sizedNotebooks } from './plugins/notebook/sized_notebooks';
import { statusBar } from './plugins/status_bar';
import { toolbar } from './plugins/notebook/toolbar';
import { usage } from './plugins/usage';
import { prefetch } from './plugins/notebook/prefetch';

const plugins: (JupyterFrontEndPlugin<unknown> | ServiceManagerPlugin<unknown>)[] = [
  kernels,
  kernelSpecs,
  kernelNames,
  kernelCommands,
  panel,
  notifications,
  picker,
  sizedNotebooks,
  history,
  administration,
  usage,
  sharedFolders,
  running,
  comingBack,
  lostCells,
  cellExecutor,
  toolbar,
  statusBar,
  cellWaits,
  missingSize,
  prefetch,
  reviving
];

export default plugins;
