// Which kernel of the status is a notebook's or console's own, now and after each change of either. No DOM.

import { ISessionContext } from '@jupyterlab/apputils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { GpuKernelsModel } from '../model/model';
import { IKernel } from '../tokens';

/**
 * unknown: nobody has told yet, or nothing runs; none: it runs and has no part of a GPU; elsewhere: this server has no
 * Aliquot; ours: `kernel` tells.
 */
export type Attachment = 'unknown' | 'none' | 'elsewhere' | 'ours';

/** Asks once for each new kernel; else it follows what the model learns for those who watch. */
export class AttachedKernel implements IDisposable {
  constructor(
    private readonly _model: GpuKernelsModel,
    readonly session: ISessionContext
  ) {
    _model.changed.connect(this._look, this);
    session.kernelChanged.connect(this._onKernelChanged, this);
    session.disposed.connect(this.dispose, this);
    this._onKernelChanged();
  }

  /** The kernel with its part of a GPU; null in every attachment but `ours`. Of one that ended, until another starts. */
  get kernel(): IKernel | null {
    return this._kernel;
  }

  get attachment(): Attachment {
    return this._attachment;
  }

  /** Whose kernels may be acted on; empty while nobody told. */
  get user(): string {
    return this._model.state.status?.user.name ?? '';
  }

  /** Emitted when kernel or attachment is a different one, or its figures are. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      Signal.clearData(this);
    }
  }

  private _onKernelChanged(): void {
    const id = this.session.session?.kernel?.id ?? null;
    if (id !== null && id !== this._id) {
      this._id = id;
      this._isTold = this._isAsked = false;
      // A status of before does not know it: until the next one, it is not said to be without a GPU.
      void this._model.readAnew().then(() => {
        this._isAsked = this._isAsked || this._id === id;
        this._look();
      });
    }
    this._look();
  }

  private _look(): void {
    if (this._isDisposed) {
      return;
    }
    const { status, problem } = this._model.state;
    if (this._isAsked && problem === null) {
      this._isTold = true; // what failed was asked again since, whoever asked
    }
    const kernel = this._id === null ? null : this._model.kernel(this._id);
    const isSized = kernel !== null && kernel.gpus > 0;
    const runs = Boolean(this.session.session?.kernel);
    const attachment: Attachment = isSized
      ? 'ours'
      : problem?.kind === 'not-installed'
        ? 'elsewhere'
        : status !== null && runs && (this._isTold || kernel !== null)
          ? 'none'
          : 'unknown';
    this._replace(attachment, isSized ? kernel : null);
  }

  private _replace(attachment: Attachment, kernel: IKernel | null): void {
    // The model keeps a kernel's object until something of it is different.
    if (attachment !== this._attachment || kernel !== this._kernel) {
      this._attachment = attachment;
      this._kernel = kernel;
      this._changed.emit();
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private _id: string | null = null;
  /** Whether a status tells of this kernel, or would. */
  private _isTold = false;
  /** Whether that question has ended, by an answer or not. */
  private _isAsked = false;
  private _kernel: IKernel | null = null;
  private _attachment: Attachment = 'unknown';
  private _isDisposed = false;
}
