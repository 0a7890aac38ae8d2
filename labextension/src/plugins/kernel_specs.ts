// Resolves the name of every size in Lab, so that custom sizes have a display name, a logo and a
// language. Lab makes this service before the application, so that it must not require plugins that
// need the application.

import {
  IConnectionStatus,
  IKernelSpecManager,
  IServerSettings,
  KernelSpec,
  KernelSpecManager,
  ServerConnection,
  ServiceManagerPlugin
} from '@jupyterlab/services';
import { nullTranslator } from '@jupyterlab/translation';

import { AliquotClient } from '../client/client';
import { KnownSpecs } from '../sizes/known_specs';
import { PluginIDs, TRANSLATION_DOMAIN } from '../tokens';

export const kernelSpecs: ServiceManagerPlugin<KernelSpec.IManager> = {
  id: PluginIDs.kernelSpecs,
  description: 'Provides the kernelspecs, with all valid sizes of each.',
  autoStart: true,
  provides: IKernelSpecManager,
  optional: [IServerSettings, IConnectionStatus],
  activate: (
    _app: null,
    settings: ServerConnection.ISettings | null,
    connection: IConnectionStatus | null
  ): KernelSpec.IManager => {
    const serverSettings = settings ?? ServerConnection.makeSettings();
    const listed = new KernelSpecManager({
      serverSettings,
      standby: () => (connection !== null && !connection.isConnected) || 'when-hidden'
    });
    // Its failures are not shown, and translations need the application.
    const client = new AliquotClient(serverSettings, nullTranslator.load(TRANSLATION_DOMAIN));
    return new KnownSpecs(listed, () => client.sizes());
  }
};
