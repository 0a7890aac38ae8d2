// The list of kernels that hold, or wait for, a part of a GPU: size, quota and use, state with its plain reason.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { enforcementFailure, interceptionFailure, kernelTitle, notebookPath, showsOwners } from '../model';
import { formatBytes, formatLike, formatPart, formatSeconds, formatShare, formatTime } from '../quantities';
import { IHostMemory, IKernel, IKernelDevice, IStatus, IUnhookedProcess } from '../tokens';
import { PartsBar } from './bar';
import { ComputeFigures } from './compute';
import { Facts } from './facts';
import { Notice } from './notice';
import { isRunning, residencyFacts, residencyState } from './residency';

interface IKernelsProps {
  /** Those of the status that are not over. */
  kernels: readonly IKernel[];
  status: IStatus;
  trans: TranslationBundle;
  open: (path: string) => void;
  keep: (kernel: IKernel) => void;
}

export function KernelList({ kernels, status, trans, open, keep }: IKernelsProps): JSX.Element {
  return (
    <>
      {kernels.length === 0 ? (
        <p className="aliquot-Empty">
          {trans.__('No kernel holds a part of a GPU. Pick a kernel with a GPU size in the launcher to start one.')}
        </p>
      ) : (
        <ul className="aliquot-List" aria-label={trans.__('GPU kernels')}>
          {kernels.map(kernel => (
            <KernelItem key={kernel.id} {...{ kernel, kernels, status, trans, open, keep }} />
          ))}
        </ul>
      )}
      <p className="aliquot-Queue">{queue(status.queue.length, trans)}</p>
      {status.node.enforcer && <Facts said={[trans.__('Limits kept by: %1', status.node.enforcer)]} />}
    </>
  );
}

function queue(length: number, trans: TranslationBundle): string {
  return length === 0
    ? trans.__('No kernel waits for room.')
    : trans._n('%1 kernel waits for room.', '%1 kernels wait for room.', length);
}

interface IKernelProps extends IKernelsProps {
  kernel: IKernel;
}

function KernelItem(props: IKernelProps): JSX.Element {
  const { kernel, status, trans } = props;
  const failure = interceptionFailure(kernel);
  return (
    <li className="aliquot-Item" data-state={kernel.state}>
      <div className="aliquot-Item-head">
        <KernelTitle {...props} />
        <span className="aliquot-Item-size">{size(kernel, trans)}</span>
      </div>
      {isRunning(kernel) && kernel.gpus > 0 && <KernelFigures kernel={kernel} trans={trans} />}
      {isRunning(kernel) && <ComputeFigures kernel={kernel} trans={trans} />}
      <Facts said={facts(kernel, status, trans)} />
      {kernel.reason && <p className="aliquot-Item-line">{kernel.reason}</p>}
      {kernel.resize && <p className="aliquot-Item-line">{kernel.resize.reason}</p>}
      {failure && (
        <Notice kind="warning">
          {trans.__('The memory limit does not hold in this kernel: %1', failure)}
        </Notice>
      )}
      <Escapes kernel={kernel} trans={trans} />
      <Ends {...props} />
    </li>
  );
}

/** Why it was started again, and when it will be ended. */
function Ends({ kernel, status, trans, keep }: IKernelProps): JSX.Element {
  const { last_crash: crash, ending_soon: soon } = kernel;
  return (
    <>
      {crash && (
        <Notice kind="info">
          {trans.__('Started again at %1: %2', formatTime(crash.at, new Date()), crash.message)}
        </Notice>
      )}
      {soon && (
        <Notice kind="warning">
          {trans.__('Will be ended at %1: %2', formatTime(soon.at, new Date()), soon.reason)}
          {soon.can_keep && kernel.owner === status.user.name && (
            <button type="button" className="aliquot-Notice-action" onClick={() => keep(kernel)}>
              {trans.__('Keep it')}
            </button>
          )}
        </Notice>
      )}
    </>
  );
}

/** What of this kernel is on a GPU and not within its limit. */
function Escapes({ kernel, trans }: { kernel: IKernel; trans: TranslationBundle }): JSX.Element {
  const failure = enforcementFailure(kernel);
  return (
    <>
      {failure && <Notice kind="warning">{trans.__('The limits of this kernel are not set: %1', failure)}</Notice>}
      {kernel.unhooked_processes.map(process => (
        <Notice key={`${process.pid} ${process.index}`} kind="warning">
          {escape(process, trans)}
        </Notice>
      ))}
    </>
  );
}

function escape(process: IUnhookedProcess, trans: TranslationBundle): string {
  const who = [String(process.pid), process.name, String(process.index)];
  return process.used_bytes === null
    ? trans.__('Process %1 (%2) uses GPU %3 past the memory limit', ...who)
    : trans.__('Process %1 (%2) holds memory of GPU %3 past the memory limit: %4', ...who, past(process));
}

function past(process: IUnhookedProcess): string {
  return formatBytes(Math.max(0, (process.used_bytes ?? 0) - process.charged_bytes));
}

function KernelTitle({ kernel, status, trans, open }: IKernelProps): JSX.Element {
  const path = notebookPath(kernel, status);
  const title = kernelTitle(kernel);
  const hint = [kernel.label, kernel.name, kernel.id].filter(Boolean).join('\n');
  if (path === null) {
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
      aria-label={trans.__('Open %1', path)}
      onClick={() => open(path)}
    >
      {title}
    </button>
  );
}

function KernelFigures({ kernel, trans }: { kernel: IKernel; trans: TranslationBundle }): JSX.Element {
  const [used, quota] = formatPart(kernel.used_bytes, kernel.quota_bytes);
  const text = trans.__('%1 of %2 used, peak %3', used, quota, formatLike(kernel.peak_bytes, kernel.quota_bytes));
  const isTight = kernel.quota_bytes > 0 && kernel.used_bytes >= 0.95 * kernel.quota_bytes;
  return (
    <>
      <PartsBar
        label={trans.__('Memory of %1', kernelTitle(kernel))}
        text={text}
        value={kernel.used_bytes}
        whole={kernel.quota_bytes}
        parts={[{ kind: isTight ? 'tight' : 'used', amount: kernel.used_bytes }]}
      />
      <p className="aliquot-Item-line">{text}</p>
      {kernel.devices.length > 1 &&
        kernel.devices.map(device => (
          <Facts key={device.uuid} said={[onDevice(device, trans)]} />
        ))}
    </>
  );
}

function onDevice(device: IKernelDevice, trans: TranslationBundle): string {
  const memory = formatPart(device.used_bytes, device.quota_bytes);
  return trans.__('GPU %1: %2 of %3 used', String(device.index), ...memory);
}

function size(kernel: IKernel, trans: TranslationBundle): string {
  if (kernel.gpus === 0) {
    return trans.__('no GPU');
  }
  const share = formatShare(kernel.gpus);
  return kernel.gpus > 1 ? trans.__('%1 GPUs', share) : trans.__('%1 GPU', share);
}

function facts(kernel: IKernel, status: IStatus, trans: TranslationBundle): string[] {
  const said = [state(kernel, trans)];
  if (showsOwners(status)) {
    said.push(kernel.owner);
  }
  if (kernel.workload_class === 'opportunistic') {
    said.push(trans.__('opportunistic'));
  }
  if (status.devices.length > 1 && kernel.devices.length === 1) {
    said.push(trans.__('GPU %1', String(kernel.devices[0]?.index)));
  }
  if (kernel.busy_seconds > 0) {
    said.push(trans.__('GPU time %1', formatSeconds(kernel.busy_seconds)));
  }
  if (kernel.context_bytes > 0) {
    said.push(trans.__('beside its limit, for contexts: %1', formatBytes(kernel.context_bytes)));
  }
  if (kernel.host_memory && kernel.host_memory.used_bytes > 0) {
    said.push(hostMemory(kernel.host_memory, trans));
  }
  if (kernel.refusals > 0) {
    said.push(trans._n('%1 allocation refused', '%1 allocations refused', kernel.refusals));
  }
  return said.concat(residencyFacts(kernel, trans));
}

function hostMemory(host: IHostMemory, trans: TranslationBundle): string {
  return host.quota_bytes === null
    ? trans.__('host memory locked: %1', formatBytes(host.used_bytes))
    : trans.__('host memory locked: %1 of %2', ...formatPart(host.used_bytes, host.quota_bytes));
}

function state(kernel: IKernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'pending':
      return kernel.queue_position === null
        ? trans.__('waiting')
        : trans.__('waiting: position %1', String(kernel.queue_position));
    case 'starting':
      return trans.__('starting');
    case 'ended':
      return trans.__('ended');
    case 'resident':
      if (kernel.gpus === 0) {
        return kernel.execution_state ?? trans.__('running');
      }
      return kernel.execution_state === 'busy'
        ? trans.__('resident, busy')
        : kernel.execution_state === 'idle'
          ? trans.__('resident, idle')
          : trans.__('resident');
    default:
      return residencyState(kernel, trans);
  }
}
