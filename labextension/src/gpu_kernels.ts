// The token by which our plugins, and other extensions, reach the model and the client.

import { Token } from '@lumino/coreutils';

import { AliquotClient } from './client/client';
import { GpuKernelsModel } from './model/model';

/** The model of GPUs and kernels, and the client that changes them. */
export interface IGpuKernels {
  readonly model: GpuKernelsModel;
  readonly client: AliquotClient;
}

export const IGpuKernels = new Token<IGpuKernels>(
  '@jupyter-aliquot/labextension:IGpuKernels',
  'The GPUs, the kernels that share them, and the way to ask for changes.'
);
