// Follows the status report of the kernel of one notebook or console. No DOM.

import { ISessionContext } from '@jupyterlab/apputils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { GpuKernelsModel } from '../model/model';
import { IKernel } from '../tokens';

/**
 * unknown: no kernel runs, or no status arrived yet; none: the kernel has no GPU; elsewhere: the server has no
 * Aliquot; ours: `kernel` has the report.
 */
export type Attachment = 'unknown' | 'none' | 'elsewhere' | 'ours';

/**
 * Requests the status once for each new kernel; otherwise follows what the model learns for its
 * watchers.
 */
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

  /**
   * The kernel's report; null unless the attachment is `ours`. An ended kernel's stays until
   * another starts.
   */
  get kernel(): IKernel | null {
    return this._kernel;
  }

  get attachment(): Attachment {
    return this._attachment;
  }

  /** The user's name; empty until the first status. */
  get user(): string {
    return this._model.state.status?.user.name ?? '';
  }

  /** Emitted when the kernel, the attachment or the kernel's report changed. */
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
      // A status from before the kernel's start does not list it; wait for the next one before
      // saying "no GPU".
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
      this._isTold = true; // another request has succeeded since the failed one
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
    // The model keeps a report's identity until its content changes.
    if (attachment !== this._attachment || kernel !== this._kernel) {
      this._attachment = attachment;
      this._kernel = kernel;
      this._changed.emit();
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private _id: string | null = null;
  /** Whether a status that lists this kernel, or could, was received. */
  private _isTold = false;
  /** Whether that request has ended, with an answer or an error. */
  private _isAsked = false;
  private _kernel: IKernel | null = null;
  private _attachment: Attachment = 'unknown';
  private _isDisposed = false;
}
