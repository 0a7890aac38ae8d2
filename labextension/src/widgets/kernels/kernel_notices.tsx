// Notices about one kernel: a limit that is not enforced, a scheduled termination, an automatic
// restart.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { enforcementFailure, interceptionFailure } from '../../model/model';
import { formatBytes, formatTime } from '../../base/quantities';
import { IKernel, IUncontrolledProcess } from '../../tokens';
import { Notice } from '../elements/notice';

interface IKernelNoticesProps {
  kernel: IKernel;
  isMine: boolean;
  trans: TranslationBundle;
  keep: (kernel: IKernel) => void;
}

export function KernelNotices(props: IKernelNoticesProps): JSX.Element {
  const { kernel, trans } = props;
  const failure = interceptionFailure(kernel);
  return (
    <>
      {failure && (
        <Notice kind="warning">{trans.__('The memory limit is not enforced in this kernel: %1', failure)}</Notice>
      )}
      <Escapes kernel={kernel} trans={trans} />
      <Ends {...props} />
    </>
  );
}

/** An administrator's message, the reason of an automatic restart, and the time of a scheduled termination. */
function Ends({ kernel, isMine, trans, keep }: IKernelNoticesProps): JSX.Element {
  const { last_crash: crash, scheduled_termination: soon, owner_message: message } = kernel;
  return (
    <>
      {message && (
        <Notice kind="info">
          {trans.__('%1 wrote at %2: %3', message.by, formatTime(message.at, new Date()), message.text)}
        </Notice>
      )}
      {crash && (
        <Notice kind="info">
          {trans.__('Started again at %1: %2', formatTime(crash.at, new Date()), crash.message)}
        </Notice>
      )}
      {soon && (
        <Notice kind="warning">
          {trans.__('Ends at %1: %2', formatTime(soon.at, new Date()), soon.message)}
          {soon.can_postpone && isMine && (
            <button type="button" className="aliquot-Notice-action" onClick={() => keep(kernel)}>
              {trans.__('Keep Running')}
            </button>
          )}
        </Notice>
      )}
    </>
  );
}

/** Processes of this kernel that use a GPU outside its limit. */
function Escapes({ kernel, trans }: { kernel: IKernel; trans: TranslationBundle }): JSX.Element {
  const failure = enforcementFailure(kernel);
  return (
    <>
      {failure && <Notice kind="warning">{trans.__('The limits of this kernel are not set: %1', failure)}</Notice>}
      {kernel.uncontrolled_processes.map(process => (
        <Notice key={`${process.pid} ${process.index}`} kind="warning">
          {escape(process, trans)}
        </Notice>
      ))}
    </>
  );
}

function escape(process: IUncontrolledProcess, trans: TranslationBundle): string {
  const who = [String(process.pid), process.name, String(process.index)];
  return process.used_bytes === null
    ? trans.__('Process %1 (%2) uses GPU %3 past the memory limit', ...who)
    : trans.__('Process %1 (%2) holds memory of GPU %3 past the memory limit: %4', ...who, past(process));
}

function past(process: IUncontrolledProcess): string {
  return formatBytes(Math.max(0, (process.used_bytes ?? 0) - process.charged_bytes));
}
