// A page that comes back starts no kernel for a notebook whose GPU kernel was shut down: the GPU may be another's by
// now. The notebook stays without a kernel until its user runs a cell, starts one, or picks one.

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
  /** `restorer`: of the page's layout; null where a page is one notebook, which comes back by a reload alone. */
  constructor(
    private readonly _model: GpuKernelsModel,
    private readonly _client: AliquotClient,
    restorer: ILayoutRestorer | null,
    private readonly _trans: TranslationBundle
  ) {
    this._comesBack = restorer !== null || isReload();
    void restorer?.restored.then(() => (this._comesBack = false));
  }

  /** To be called when a notebook is opened, `path` being the server's. Its first start is the page's own. */
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

  /** Null, too, where the server does not tell. */
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
