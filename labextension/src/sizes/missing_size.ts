// When a cell fails since its kernel has no GPU size: CUDA's own words name the driver, which is not what lacks. No DOM.

/** As much of a message on iopub as is looked at. */
export interface IHeard {
  readonly header: { readonly msg_type: string };
  readonly content: object;
}

/** How the driver's library and those above it (CUDA runtime, PyTorch, CuPy, Numba, JAX, cuda-python) say it. */
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
  /** Whether to tell it of this message, in a kernel that has no part of a GPU: once a kernel. */
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
