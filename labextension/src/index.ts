// All our plugins. Registration only: what each does is in its own file, which is loaded when Lab
// activates the plugin. Lab loads this module before it paints for the first time.

import { ILabShell, ILayoutRestorer, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, ISessionContextDialogs, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookCellExecutor, INotebookTracker } from '@jupyterlab/notebook';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ServiceManagerPlugin } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';

import { IGpuKernels } from './gpu_kernels';
import { kernelSpecs } from './plugins/kernel_specs';
import { PluginIDs } from './tokens';

type Activations = typeof import('./activations');
type Facts = Omit<JupyterFrontEndPlugin<unknown>, 'id' | 'autoStart' | 'activate'>;

// Where a page paints no frames, for it is not shown, its plugins wait no longer.
const FRAME_MS = 100;
let frame: Promise<void> | null = null;

/**
 * Return when Lab has painted what it had before ours: most of its plugins wait for some of ours, and are then
 * activated in one go, in which nothing is painted.
 */
function painted(): Promise<void> {
  frame ??= new Promise(resolve => {
    requestAnimationFrame(() => setTimeout(resolve, 0));
    setTimeout(resolve, document.hidden ? 0 : FRAME_MS);
  });
  return frame;
}

/** Return the plugin of this name, whose code is loaded with that of all others. */
function plugin(name: keyof Activations, facts: Facts): JupyterFrontEndPlugin<unknown> {
  return {
    id: PluginIDs[name],
    autoStart: true,
    ...facts,
    activate: async (...given: unknown[]) => {
      const [activations] = await Promise.all([import('./activations'), painted()]);
      return (activations[name] as (...given: unknown[]) => unknown)(...given);
    }
  };
}

const plugins: (JupyterFrontEndPlugin<unknown> | ServiceManagerPlugin<unknown>)[] = [
  plugin('kernels', {
    description: 'Provides what is known of the GPUs and of the kernels that share them.',
    provides: IGpuKernels,
    optional: [ITranslator]
  }),
  kernelSpecs,
  plugin('kernelNames', {
    description: 'Has all of the page call a kernel by the size that it was given while it runs.',
    requires: [IGpuKernels]
  }),
  plugin('kernelCommands', {
    description: 'Adds commands that open, follow, swap, keep, share, restart and shut down one GPU kernel.',
    requires: [IGpuKernels],
    optional: [ISessionContextDialogs, ITranslator]
  }),
  plugin('panel', {
    description: 'Adds the sidebar panel of GPUs and of the kernels that share them.',
    requires: [IGpuKernels],
    optional: [ICommandPalette, ILayoutRestorer, ITranslator]
  }),
  plugin('notifications', {
    description: 'Announces what ends or starts one of your kernels, a lack of memory, and folders shared with you.',
    requires: [IGpuKernels],
    optional: [ISettingRegistry, ITranslator, INotebookTracker]
  }),
  plugin('picker', {
    description: 'Provides the dialogs of sessions; a kernel is picked together with its size.',
    requires: [IGpuKernels],
    optional: [ITranslator, ISettingRegistry],
    provides: ISessionContextDialogs
  }),
  plugin('sizedNotebooks', {
    description: 'Starts notebooks at the size that they name, and never at another.',
    requires: [IGpuKernels],
    optional: [ILayoutRestorer, ITranslator]
  }),
  plugin('history', {
    description: 'Adds the page of who used which GPU when.',
    requires: [IGpuKernels],
    optional: [ICommandPalette, ILayoutRestorer, ITranslator]
  }),
  plugin('administration', {
    description: 'Adds the page of administrators: nodes, kernels, users, teams and the queue.',
    requires: [IGpuKernels],
    optional: [ICommandPalette, ILayoutRestorer, ITranslator, ILauncher]
  }),
  plugin('usage', {
    description: 'Adds the page of GPU-hours of a month.',
    requires: [IGpuKernels],
    optional: [ICommandPalette, ILayoutRestorer, ITranslator]
  }),
  plugin('sharedFolders', {
    description: 'Adds the page of folders that users share.',
    requires: [IGpuKernels],
    optional: [ICommandPalette, ILayoutRestorer, ITranslator]
  }),
  plugin('running', {
    description: 'Adds GPU kernels to the panel of running terminals and kernels.',
    requires: [IGpuKernels],
    optional: [IRunningSessionManagers, ITranslator]
  }),
  plugin('comingBack', {
    description: 'Shows in a notebook that comes back to its kernel what its cells had shown, and goes on from there.',
    requires: [IGpuKernels, INotebookTracker],
    optional: [ITranslator]
  }),
  plugin('lostCells', {
    description: 'Marks cells that were lost with the connection to their kernel, so that none waits for ever.',
    requires: [IGpuKernels, INotebookTracker],
    optional: [ITranslator]
  }),
  plugin('cellExecutor', {
    description: 'Runs cells, and lets those wait that are run before their kernel is there.',
    provides: INotebookCellExecutor,
    optional: [IGpuKernels, ITranslator]
  }),
  plugin('toolbar', {
    description: 'Shows the GPU of the kernel in the toolbar of notebooks and consoles.',
    requires: [IGpuKernels, IToolbarWidgetRegistry],
    optional: [ISessionContextDialogs, INotebookTracker, ITranslator]
  }),
  plugin('statusBar', {
    description: 'Shows the GPU of the current kernel in the status bar.',
    requires: [IGpuKernels],
    optional: [IStatusBar, ILabShell, ISessionContextDialogs, INotebookTracker, ITranslator]
  }),
  plugin('cellWaits', {
    description: "Marks cells that wait for their kernel's GPU, with the reason.",
    requires: [IGpuKernels, INotebookTracker],
    optional: [ITranslator]
  }),
  plugin('missingSize', {
    description: 'Tells that a size is what a kernel lacks whose cell finds no CUDA device.',
    requires: [IGpuKernels, INotebookTracker],
    optional: [ISessionContextDialogs, ITranslator]
  }),
  plugin('prefetch', {
    description: 'Restores a swapped-out kernel when its user turns to a cell of its notebook.',
    requires: [IGpuKernels, INotebookTracker]
  }),
  plugin('reviving', {
    description: 'Connects notebooks and consoles to their kernels again as soon as a gateway that was away is back.',
    requires: [IGpuKernels]
  })
];

export default plugins;
