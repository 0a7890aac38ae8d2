// The model and the client, one of each per page, with Lab's connection settings. All our other
// plugins need them.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { AliquotClient } from '../client/client';
import { IGpuKernels } from '../gpu_kernels';
import { GpuKernelsModel } from '../model/model';
import { BrowserPage } from '../client/page';
import { storage } from '../base/storage';
import { EventStream } from '../client/stream';
import { PLUGIN_ID, TRANSLATION_DOMAIN } from '../tokens';

export const kernels = (app: JupyterFrontEnd, translator: ITranslator | null): IGpuKernels => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const { serverSettings } = app.serviceManager;
  const client = new AliquotClient(serverSettings, trans);
  const dismissed = storage(`${PLUGIN_ID}:dismissed:${serverSettings.baseUrl}`);
  const stream = new EventStream(serverSettings);
  const model = new GpuKernelsModel({ source: client, stream, page: new BrowserPage(), dismissed, trans });
  return { client, model };
};
