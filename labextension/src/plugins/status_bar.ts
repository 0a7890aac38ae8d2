// The GPU item of the status bar, for the notebook or console in front.

import { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContext, ISessionContextDialogs } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { ISignal, Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { AttachedKernel } from '../sessions/attached_kernel';
import { IGpuKernels } from '../gpu_kernels';
import { GpuKernelsModel } from '../model/model';
import { PluginIDs, TRANSLATION_DOMAIN } from '../tokens';
import { KernelItem } from '../widgets/notebook/kernel_item';
import { KernelPopovers } from '../widgets/notebook/kernel_popover';

/** Beside Lab's own "Python 3 | Idle", whose rank is 1. */
const RANK = 1.5;

export const statusBar = (
  app: JupyterFrontEnd,
  { model, client }: IGpuKernels,
  bar: IStatusBar | null,
  shell: ILabShell | null,
  dialogs: ISessionContextDialogs | null,
  notebooks: INotebookTracker | null,
  translator: ITranslator | null
): void => {
  if (bar === null || shell === null) {
    return; // Notebook 7 has neither
  }
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const popovers = new KernelPopovers({ model, client, commands: app.commands, trans, dialogs, notebooks });
  const item = new KernelItem({ model, trans, place: 'status-bar', press: item => popovers.press(item) });
  const inFront = new KernelInFront(model, item);
  shell.currentChanged.connect((_, { newValue }) => inFront.follow(newValue));
  bar.registerStatusItem(PluginIDs.statusBar, {
    item,
    align: 'left',
    rank: RANK,
    isActive: () => inFront.isTold,
    activeStateChanged: inFront.toldChanged
  });
  inFront.follow(shell.currentWidget);
};

/** Follows the current widget, and shows its kernel in one item. */
class KernelInFront {
  constructor(
    private readonly _model: GpuKernelsModel,
    private readonly _item: KernelItem
  ) {}

  /** Whether there is something to show. */
  get isTold(): boolean {
    return this._isTold;
  }

  get toldChanged(): ISignal<this, void> {
    return this._toldChanged;
  }

  follow(widget: Widget | null): void {
    const session = sessionOf(widget);
    const before = this._item.attached;
    if (session !== (before?.session ?? null)) {
      before?.changed.disconnect(this._look, this);
      before?.dispose();
      const attached = session && new AttachedKernel(this._model, session);
      this._item.attached = attached;
      attached?.changed.connect(this._look, this);
    }
    this._look();
  }

  private _look(): void {
    const attachment = this._item.attached?.attachment;
    const isTold = attachment === 'ours' || attachment === 'none';
    if (isTold !== this._isTold) {
      this._isTold = isTold;
      this._toldChanged.emit();
    }
  }

  private readonly _toldChanged = new Signal<this, void>(this);
  private _isTold = false;
}

/** The property under which notebooks and consoles have their session context. */
function sessionOf(widget: Widget | null): ISessionContext | null {
  const found = (widget as { sessionContext?: ISessionContext } | null)?.sessionContext;
  return found?.kernelChanged ? found : null;
}
