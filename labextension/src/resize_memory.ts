// Which sizes this page has asked for, until their kernels have them: what waits is not yet the kernel's. No DOM.

import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';

import { IKernel } from './tokens';

interface IResizes {
  readonly resized: ISignal<unknown, IKernel>;
}

interface IKernels {
  readonly kernelChanged: ISignal<unknown, { readonly id: string; readonly kernel: IKernel | null }>;
}

export class ResizeMemory implements IDisposable {
  /** `settled`: called once with the kernel for each change that this page asked for and that is in force. */
  constructor(
    private readonly _resizes: IResizes,
    private readonly _kernels: IKernels,
    private readonly _settled: (kernel: IKernel) => Promise<void>
  ) {
    _resizes.resized.connect(this._ask, this);
    _kernels.kernelChanged.connect(this._look, this);
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._resizes.resized.disconnect(this._ask, this);
    this._kernels.kernelChanged.disconnect(this._look, this);
  }

  private _ask(_: unknown, kernel: IKernel): void {
    this._waiting.add(kernel.id);
    this._settle(kernel);
  }

  private _look(_: unknown, { id, kernel }: { readonly id: string; readonly kernel: IKernel | null }): void {
    if (kernel === null) {
      this._waiting.delete(id);
    } else {
      this._settle(kernel);
    }
  }

  private _settle(kernel: IKernel): void {
    if (kernel.resize === null && this._waiting.delete(kernel.id)) {
      this._settled(kernel).catch(error => {
        console.warn('aliquot: the notebook still names the size of before.', error);
      });
    }
  }

  private readonly _waiting = new Set<string>();
  private _isDisposed = false;
}
