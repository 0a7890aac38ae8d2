// The popover of a kernel's item: its figures, its wait, and its actions. It follows the model
// while it is open.

import { ISessionContextDialogs } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { AttachedKernel } from '../../sessions/attached_kernel';
import { AliquotClient } from '../../client/client';
import { kernelSize, kernelState } from '../../model/kernel_line';
import { GpuKernelsModel, kernelTitle } from '../../model/model';
import { formatLike, formatPart } from '../../base/quantities';
import { CommandIDs, IKernel } from '../../tokens';
import { IWait, waitOf } from '../../model/waits';
import { KernelActions } from '../kernels/actions';
import { PartsBar } from '../elements/bar';
import { ComputeFigures } from '../devices/compute';
import { Facts } from '../elements/facts';
import { MemoryBar } from '../kernels/kernel_entry';
import { pickSize } from './kernel_dialogs';
import { KernelItem } from './kernel_item';
import { Popover } from '../elements/popover';
import { residencyFacts } from '../kernels/residency';
import { WaysOut } from '../kernels/ways_out';

/** Opens at most one popover at a time, for any number of items. */
export class KernelPopovers {
  constructor(private readonly _options: KernelPopovers.IOptions) {}

  /** Toggle the popover of an item; for a kernel without a GPU, open Lab's picker. */
  press(item: KernelItem): void {
    const { attached } = item;
    const wasOpen = this._item === item;
    this._popover?.close();
    if (wasOpen || attached === null) {
      return;
    }
    if (attached.kernel === null) {
      void pickSize(this._options.dialogs, attached.session);
    } else {
      this._open(item, attached, kernelTitle(attached.kernel));
    }
  }

  private _open(item: KernelItem, attached: AttachedKernel, title: string): void {
    const { model, trans } = this._options;
    const body: ReactWidget = ReactWidget.create(<KernelDetails {...this._options} attached={attached} close={() => popover.close()} />);
    const label = trans.__('GPU of %1', title);
    const popover: Popover = new Popover({ body, label, anchor: () => item.button, ready: () => body.renderPromise });
    const watch = model.watch();
    popover.disposed.connect(() => {
      watch.dispose();
      this._popover = this._item = null;
      if (!item.isDisposed) {
        item.isOpen = false;
      }
    });
    item.disposed.connect(popover.close, popover); // ends with the popover, which has a shorter life than the item
    this._popover = popover;
    this._item = item;
    item.isOpen = true;
    popover.open();
  }

  private _popover: Popover | null = null;
  private _item: KernelItem | null = null;
}

export namespace KernelPopovers {
  export interface IOptions {
    model: GpuKernelsModel;
    client: AliquotClient;
    commands: CommandRegistry;
    trans: TranslationBundle;
    /** Lab's kernel picker, where there is one. */
    dialogs: ISessionContextDialogs | null;
    /** The page's widgets, to find the kernel's notebook. */
    notebooks: INotebookTracker | null;
  }
}

interface IDetailsProps extends KernelPopovers.IOptions {
  attached: AttachedKernel;
  close: () => void;
}

function KernelDetails(props: IDetailsProps): JSX.Element {
  return (
    <UseSignal signal={props.model.changed} initialArgs={props.model.state}>
      {() => <Details {...props} />}
    </UseSignal>
  );
}

function Details({ attached, model, client, commands, trans, notebooks, close }: IDetailsProps): JSX.Element {
  const { kernel } = attached;
  const { status, problem } = model.state;
  if (!kernel || !status) {
    return <p className="aliquot-Popover-line">{trans.__('The kernel has no GPU any more.')}</p>;
  }
  const wait = waitOf(kernel, trans);
  const reason = kernel.termination?.message ?? kernel.reason;
  const { session } = attached;
  const notebook = notebooks?.find(panel => panel.sessionContext === session) ?? null;
  return (
    <>
      <div className="aliquot-Popover-head">
        <span className="aliquot-Popover-size">{kernelSize(kernel.gpus, trans)}</span>
        <span className="aliquot-Popover-state" data-state={kernel.state}>
          {kernelState(kernel, trans)}
        </span>
      </div>
      {problem && <p className="aliquot-Popover-line">{trans.__('The server does not answer: these figures are old.')}</p>}
      <Figures kernel={kernel} trans={trans} />
      {wait && wait.kind !== 'asleep' && <Wait wait={wait} trans={trans} />}
      {reason && !(wait?.why && reason.includes(wait.why)) && <p className="aliquot-Popover-line">{reason}</p>}
      <WaysOut {...{ kernel, status, session, notebook, client, commands, trans }} />
      <KernelActions {...{ kernel, status, model, client, commands, trans }} withoutOpen />
      {commands.hasCommand(CommandIDs.show) && (
        <button
          type="button"
          className="aliquot-Popover-link"
          onClick={() => {
            close(); // the action moves the button that anchors this popover
            void commands.execute(CommandIDs.show);
          }}
        >
          {trans.__('Show all GPU kernels')}
        </button>
      )}
    </>
  );
}

function Figures({ kernel, trans }: { kernel: IKernel; trans: TranslationBundle }): JSX.Element | null {
  if (!['on_gpu', 'swapped_out', 'restoring', 'checkpointed'].includes(kernel.state)) {
    return null;
  }
  const [used, quota] = formatPart(kernel.used_bytes, kernel.memory_limit_bytes);
  const text = trans.__('%1 of %2 used, peak %3', used, quota, formatLike(kernel.peak_bytes, kernel.memory_limit_bytes));
  return (
    <>
      <MemoryBar kernel={kernel} trans={trans} />
      <p className="aliquot-Popover-line">{text}</p>
      <ComputeFigures kernel={kernel} trans={trans} />
      <Facts said={residencyFacts(kernel, trans)} />
    </>
  );
}

function Wait({ wait, trans }: { wait: IWait; trans: TranslationBundle }): JSX.Element {
  return (
    <>
      <p className="aliquot-Popover-line">{wait.text}</p>
      {wait.why && <p className="aliquot-Popover-line aliquot-mod-quiet">{wait.why}</p>}
      {wait.progress && (
        <PartsBar
          label={trans.__('Copied')}
          text={wait.text}
          value={wait.progress.done}
          whole={wait.progress.total}
          parts={[{ kind: 'used', amount: wait.progress.done }]}
        />
      )}
    </>
  );
}
