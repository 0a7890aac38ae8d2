// Notices of problems, with their remedies. Screen readers announce them.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IState } from '../../model/model';
import { INode, StatusError } from '../../tokens';
import { noteIcon, warningIcon } from './icons';

interface INoticeProps {
  kind: 'info' | 'warning';
  children: React.ReactNode;
}

export function Notice({ kind, children }: INoticeProps): JSX.Element {
  const icon = kind === 'warning' ? warningIcon : noteIcon;
  return (
    <div className={`aliquot-Notice aliquot-mod-${kind}`} role={kind === 'warning' ? 'alert' : 'note'}>
      <icon.react className="aliquot-Notice-icon" tag="span" />
      <span>{children}</span>
    </div>
  );
}

/** All notices about the state as a whole, the most severe first. */
export function StateNotices({ state, trans }: { state: IState; trans: TranslationBundle }): JSX.Element {
  const { status, problem } = state;
  const trouble = status && nodeTrouble(status.node, trans);
  return (
    <>
      {problem && <Notice kind="warning">{explain(problem, trans)}</Notice>}
      {!problem && trouble && <Notice kind="warning">{trouble}</Notice>}
      {status && status.node.untracked_processes > 0 && (
        <Notice kind="info">
          {trans._n(
            '%1 process on the GPUs belongs to no kernel: no kernel can reserve its memory.',
            '%1 processes on the GPUs belong to no kernel: no kernel can reserve their memory.',
            status.node.untracked_processes
          )}
        </Notice>
      )}
      {status?.node.driver === 'softgpu' && (
        <Notice kind="info">{trans.__('Software GPU: compiled GPU code is timed, not executed')}</Notice>
      )}
      {!status && !problem && <p className="aliquot-Empty">{trans.__('Looking for GPUs…')}</p>}
    </>
  );
}

/** The server's message about a problem of the node; null if there is none. */
function nodeTrouble(node: INode, trans: TranslationBundle): string | null {
  const isSilent = node.agent === 'unavailable' && !node.message;
  return isSilent ? trans.__('The node agent does not answer. Run "aliquot doctor" on the server.') : node.message;
}

function explain(problem: StatusError, trans: TranslationBundle): string {
  switch (problem.kind) {
    case 'not-installed':
      return trans.__(
        'This Jupyter server does not run Aliquot. Install the package jupyter-aliquot where the server runs, ' +
          'check it with "jupyter server extension list", and restart the server.'
      );
    case 'forbidden':
      return trans.__('The server does not let you see its GPUs: %1', problem.message);
    case 'too-many':
      return trans.__('The server answers this page more slowly for a while: %1', problem.message);
    case 'unreachable':
      return trans.__('The server does not answer. The figures below are the last known ones; trying again.');
    case 'server':
      return trans.__('The server could not report its GPUs: %1', problem.message);
  }
}
