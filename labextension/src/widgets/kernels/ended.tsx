// Ended kernels, each with reason and time, until the user dismisses them.

import { TranslationBundle } from '@jupyterlab/translation';
import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { isSharedWithMe, showsOwners } from '../../model/kernel_access';
import { kernelTitle } from '../../model/model';
import { formatTime } from '../../base/quantities';
import { IKernel, IStatus } from '../../tokens';

interface IEndedProps {
  kernels: readonly IKernel[];
  status: IStatus;
  trans: TranslationBundle;
  dismiss: (kernel: IKernel) => void;
}

export function EndedList({ kernels, status, trans, dismiss }: IEndedProps): JSX.Element | null {
  if (kernels.length === 0) {
    return null;
  }
  return (
    <ul className="aliquot-List aliquot-mod-ended" aria-label={trans.__('Ended kernels')}>
      {kernels.map(kernel => (
        <li className="aliquot-Item" data-state="ended" key={kernel.id}>
          <div className="aliquot-Item-head">
            <span className="aliquot-Item-title" title={[kernel.label, kernel.name, kernel.id].join('\n')}>
              {kernelTitle(kernel)}
            </span>
            <span className="aliquot-Item-size">{formatTime(kernel.termination?.at ?? '', new Date())}</span>
            <button
              type="button"
              className="aliquot-Item-dismiss"
              title={trans.__('Dismiss')}
              aria-label={trans.__('Dismiss %1', kernelTitle(kernel))}
              onClick={() => dismiss(kernel)}
            >
              <closeIcon.react tag="span" width="12px" />
            </button>
          </div>
          {(showsOwners(status) || isSharedWithMe(kernel)) && (
            <p className="aliquot-Item-line aliquot-mod-quiet">{kernel.owner}</p>
          )}
          <p className="aliquot-Item-line">{kernel.termination?.message}</p>
        </li>
      ))}
    </ul>
  );
}
