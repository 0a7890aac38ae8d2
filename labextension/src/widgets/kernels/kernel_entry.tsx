// One kernel in the list: its size, memory, GPU time and state; details are folded behind "…".

import { TranslationBundle } from '@jupyterlab/translation';
import { ellipsesIcon, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import { AliquotClient } from '../../client/client';
import { hasTime } from '../../model/compute';
import { kernelParts } from '../../model/device_parts';
import { accessTo } from '../../model/kernel_access';
import { GpuKernelsModel, kernelTitle } from '../../model/model';
import { formatLike, formatPart } from '../../base/quantities';
import { ACTION_COMMANDS, IKernel, IKernelDevice } from '../../tokens';
import { ICommands, KernelActions } from './actions';
import { PartsBar } from '../elements/bar';
import { ComputeFigures, computeDetails } from '../devices/compute';
import { Facts } from '../elements/facts';
import { kernelDetails, kernelFacts, sizeText } from './kernel_words';
import { KernelNotices } from './kernel_notices';
import { isRunning } from './residency';
import { accessName } from '../sharing/share_words';

/** The properties that all entries share; one object for the life of the panel. */
export interface IKernelTools {
  readonly model: GpuKernelsModel;
  readonly client: AliquotClient;
  readonly commands: ICommands;
  readonly trans: TranslationBundle;
  readonly keep: (kernel: IKernel) => void;
}

interface IKernelEntryProps {
  kernel: IKernel;
  tools: IKernelTools;
  isMine: boolean;
  /** The folder to show if another kernel's notebook has the same name; else null. */
  folder: string | null;
  /** The short id to show if another kernel has the same name and folder; else null. */
  shortId: string | null;
  /** Whether to show the device. */
  showsDevice: boolean;
}

/**
 * Renders again only if its kernel's report changed; the model keeps the identity of an unchanged
 * one.
 */
export const KernelEntry = React.memo(function KernelEntry(props: IKernelEntryProps): JSX.Element {
  const { kernel, tools, isMine, showsDevice } = props;
  const { trans } = tools;
  const [isOpen, setOpen] = React.useState(false);
  const id = React.useId();
  const folded = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    if (isOpen) {
      folded.current?.scrollIntoView({ block: 'nearest' }); // of the last one it is below what is seen
    }
  }, [isOpen]);
  return (
    <li className="aliquot-Item" data-state={kernel.state} data-kernel={kernel.id}>
      <div className="aliquot-Item-head">
        <KernelTitle {...props} />
        <span className="aliquot-Item-size">{sizeText(kernel, trans)}</span>
        <button
          type="button"
          className="aliquot-Item-more"
          aria-expanded={isOpen}
          aria-controls={id}
          aria-label={trans.__('Actions and details of %1', kernelTitle(kernel))}
          title={trans.__('Actions and details')}
          onClick={() => setOpen(!isOpen)}
        >
          <ellipsesIcon.react tag="span" width="16px" />
        </button>
      </div>
      <Whose kernel={kernel} trans={trans} />
      {isRunning(kernel) && kernel.gpus > 0 && <MemoryBar kernel={kernel} trans={trans} />}
      <div className="aliquot-Item-lines">
        {isRunning(kernel) && kernel.gpus > 0 && <p className="aliquot-Item-line">{usedText(kernel, trans)}</p>}
        <Facts said={kernelFacts(kernel, showsDevice, trans)} />
      </div>
      {isRunning(kernel) && <Devices kernel={kernel} trans={trans} />}
      <Move kernel={kernel} trans={trans} />
      {isRunning(kernel) && hasTime(kernel) && <ComputeFigures kernel={kernel} trans={trans} />}
      {kernel.reason && <p className="aliquot-Item-line">{kernel.reason}</p>}
      {kernel.resize && <p className="aliquot-Item-line">{kernel.resize.reason}</p>}
      <KernelNotices kernel={kernel} isMine={isMine} trans={trans} keep={tools.keep} />
      <div id={id} ref={folded} className="aliquot-Item-folded" hidden={!isOpen}>
        {isOpen && <Folded kernel={kernel} tools={tools} />}
      </div>
    </li>
  );
});

/** Details and actions. Actions depend on the whole status, which only an open entry follows. */
function Folded({ kernel, tools }: { kernel: IKernel; tools: IKernelTools }): JSX.Element {
  const { model, trans } = tools;
  return (
    <>
      <UseSignal signal={model.changed} initialArgs={model.state}>
        {() => model.state.status && <KernelActions kernel={kernel} status={model.state.status} {...tools} />}
      </UseSignal>
      <Facts said={[...kernelDetails(kernel, trans), ...computeDetails(kernel, trans)]} />
    </>
  );
}

function KernelTitle({ kernel, tools, isMine, folder, shortId }: IKernelEntryProps): JSX.Element {
  const name = kernelTitle(kernel);
  const placed = folder === null ? name : tools.trans.__('%1 in %2', name, folder);
  const title = shortId === null ? placed : tools.trans.__('%1, kernel %2', placed, shortId);
  const hint = [kernel.label, kernel.name, kernel.id].filter(Boolean).join('\n');
  const canOpen = isMine && tools.commands.isEnabled(ACTION_COMMANDS.open, { kernelId: kernel.id });
  if (!canOpen) {
    return (
      <span className="aliquot-Item-title" title={hint}>
        {title}
      </span>
    );
  }
  return (
    <button
      type="button"
      className="aliquot-Item-title aliquot-Item-link"
      title={hint}
      aria-label={tools.trans.__('Open %1', kernel.label)}
      onClick={() => void tools.commands.execute(ACTION_COMMANDS.open, { kernelId: kernel.id })}
    >
      {title}
    </button>
  );
}

/** The owner of a shared kernel, and the access that the user has. */
function Whose({ kernel, trans }: IFiguresProps): JSX.Element | null {
  const access = accessTo(kernel);
  return access === 'own' ? null : (
    <p className="aliquot-Item-line aliquot-Shared-whose">
      {trans.__('of %1', kernel.owner)} <span className="aliquot-Shared-access">{accessName(access, trans)}</span>
    </p>
  );
}

interface IFiguresProps {
  kernel: IKernel;
  trans: TranslationBundle;
}

export function MemoryBar({ kernel, trans }: IFiguresProps): JSX.Element {
  const parts = kernelParts(kernel);
  const say = (bytes: number): string => formatLike(bytes, kernel.memory_limit_bytes);
  const beyond = [
    ...(parts.burstable > 0 ? [trans.__('%1 burstable', say(parts.burstable))] : []),
    ...(parts.swapped > 0 ? [trans.__('%1 swapped', say(parts.swapped))] : [])
  ];
  const isTight = kernel.memory_limit_bytes > 0 && kernel.used_bytes >= 0.95 * kernel.memory_limit_bytes;
  return (
    <PartsBar
      label={trans.__('Memory of %1', kernelTitle(kernel))}
      text={[usedText(kernel, trans), ...beyond].join(', ')}
      value={kernel.used_bytes}
      whole={kernel.memory_limit_bytes}
      parts={[
        { kind: isTight ? 'tight' : 'mine', amount: parts.resident },
        { kind: 'mine-burstable', amount: parts.burstable },
        { kind: 'mine-swapped', amount: parts.swapped }
      ]}
    />
  );
}

function usedText(kernel: IKernel, trans: TranslationBundle): string {
  return trans.__('%1 of %2 used', ...formatPart(kernel.used_bytes, kernel.memory_limit_bytes));
}

/** The use of each device, for a kernel on several devices. */
function Devices({ kernel, trans }: IFiguresProps): JSX.Element | null {
  if (kernel.devices.length < 2) {
    return null;
  }
  return <Facts said={kernel.devices.map(device => onDevice(device, trans))} />;
}

/** The progress of a running copy. */
function Move({ kernel, trans }: IFiguresProps): JSX.Element | null {
  const moving = kernel.residency?.moving;
  if (!moving || moving.total_bytes === 0) {
    return null;
  }
  const amounts = formatPart(moving.done_bytes, moving.total_bytes);
  const isComing = kernel.state === 'restoring';
  const text = isComing ? trans.__('restoring: %1 of %2', ...amounts) : trans.__('swapping out: %1 of %2', ...amounts);
  return (
    <div className="aliquot-Move">
      <progress max={moving.total_bytes} value={moving.done_bytes} aria-label={text} />
      <span>{text}</span>
    </div>
  );
}

function onDevice(device: IKernelDevice, trans: TranslationBundle): string {
  const memory = formatPart(device.used_bytes, device.memory_limit_bytes);
  return trans.__('GPU %1: %2 of %3 used', String(device.index), ...memory);
}
