// All our plugins. Registration only: what each does is in its own file.

import { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { kernelCommands } from './plugins/kernel_commands';
import { kernels } from './plugins/kernels';
import { panel } from './plugins/panel';

const plugins: JupyterFrontEndPlugin<unknown>[] = [kernels, kernelCommands, panel];

export default plugins;
