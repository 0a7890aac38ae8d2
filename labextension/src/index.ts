// All our plugins. Registration only: what each does is in its own file.

import { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { kernels } from './plugins/kernels';
import { panel } from './plugins/panel';

const plugins: JupyterFrontEndPlugin<unknown>[] = [kernels, panel];

export default plugins;
