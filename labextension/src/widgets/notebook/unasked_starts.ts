// Prevents a reloaded page from starting a kernel for a notebook whose GPU kernel was shut down:
// another user may have the GPU by now. The notebook stays without a kernel until its user runs a
// cell, or starts or picks a kernel.

import { ILayoutRestorer } from '@jupyterlab/application';
import { ISessionContext, Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { AliquotClient } from '../../client/client';
import { GpuKernelsModel, kernelTitle } from '../../model/model';
import { shutDownKernel } from '../../sessions/shut_down';
import { IKernel } from '../../tokens';

const SHOWN_MS = 15000;

/** For the notebooks of one page. */
export class UnaskedStarts {
  /**
   * `restorer` is that of the page's layout; null if the page is one notebook, which only a reload
   * restores.
   */
  constructor(
    private readonly _model: GpuKernelsModel,
    private readonly _client: AliquotClient,
    restorer: ILayoutRestorer | null,
    private readonly _trans: TranslationBundle
  ) {
    this._comesBack = restorer !== null || isReload();
    void restorer?.restored.then(() => (this._comesBack = false));
  }

  /**
   * Call when a notebook opens; `path` is the server's. The first start is the page's, not the
   * user's.
   */
  hold(context: ISessionContext, path: string): void {
    if (!this._comesBack) {
      return;
    }
    const start = context.startKernel.bind(context);
    context.startKernel = async () => {
      context.startKernel = start;
      const kernel = await this._shutDown(path);
      if (kernel === null) {
        return start();
      }
      this._tell(kernel, context);
      return false;
    };
  }

  /** Return the kernel that was shut down; null if there is none or the server does not answer. */
  private async _shutDown(path: string): Promise<IKernel | null> {
    this._kernels ??= this._client.kernels().catch(() => []);
    const [kernels] = await Promise.all([this._kernels, this._model.state.status ?? this._model.readAnew()]);
    return shutDownKernel(kernels, this._model.state.status?.user.name ?? '', path);
  }

  private _tell(kernel: IKernel, context: ISessionContext): void {
    const why = (kernel.termination?.message ?? '').replace(/\.$/, '');
    const message = this._trans.__('%1 has no kernel: %2. Run a cell to start one.', kernelTitle(kernel), why);
    const callback = (): void => void context.startKernel();
    Notification.info(message, { autoClose: SHOWN_MS, actions: [{ label: this._trans.__('Start a kernel'), callback }] });
  }

  private _comesBack: boolean;
  private _kernels: Promise<readonly IKernel[]> | null = null;
}

function isReload(): boolean {
  const [entry] = performance.getEntriesByType('navigation');
  return entry !== undefined && (entry as PerformanceNavigationTiming).type === 'reload';
}
