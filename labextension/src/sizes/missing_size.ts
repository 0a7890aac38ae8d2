// Detects cells that fail because their kernel has no GPU size; CUDA's message blames the driver
// instead. No DOM.

/** The used part of an iopub message. */
export interface IHeard {
  readonly header: { readonly msg_type: string };
  readonly content: object;
}

/**
 * The messages of the driver's library and those above it (CUDA runtime, PyTorch, CuPy, Numba, JAX,
 * cuda-python).
 */
const NO_DEVICE = new RegExp(
  [
    'CUDA_ERROR_NO_DEVICE',
    'cudaErrorNoDevice',
    'cudaErrorInsufficientDriver',
    'no CUDA-capable device',
    'No CUDA GPUs are available',
    'no NVIDIA driver',
    'NVIDIA display driver',
    'CUDA driver version is insufficient',
    'libcuda\\.so'
  ].join('|'),
  'i'
);

export class MissingSizes {
  /** Whether to notify about this message of a kernel without a GPU; true once per kernel. */
  hear(kernelId: string, message: IHeard): boolean {
    if (message.header.msg_type !== 'error' || this._told.has(kernelId)) {
      return false;
    }
    const { ename, evalue } = message.content as { ename?: unknown; evalue?: unknown };
    if (!NO_DEVICE.test(`${String(ename)}: ${String(evalue)}`)) {
      return false;
    }
    this._told.add(kernelId);
    return true;
  }

  private readonly _told = new Set<string>();
}
