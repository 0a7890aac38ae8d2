// The list of kernels that hold a share of a GPU or wait for one: the user's own or, for
// administrators, all by owner; then the kernels that others share.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { divideShared, showsOwners } from '../../model/kernel_access';
import { byOwner, foldersToTell, idsToTell } from '../../model/kernel_groups';
import { IKernel, IStatus } from '../../tokens';
import { IKernelTools, KernelEntry } from './kernel_entry';
import { QueueLine } from './queue';
import { GpuLimitLine } from './gpu_limit';
import { SharedKernels } from '../sharing/shared_kernels';
import { OwnerGroup } from './users';

interface IKernelsProps {
  /** The kernels of the status that have not ended. */
  kernels: readonly IKernel[];
  status: IStatus;
  tools: IKernelTools;
}

export function KernelList({ kernels, status, tools }: IKernelsProps): JSX.Element {
  const { trans } = tools;
  const { listed, shared } = divideShared(kernels);
  const folders = foldersToTell(kernels);
  const ids = idsToTell(kernels);
  const entry = (kernel: IKernel): JSX.Element => (
    <KernelEntry
      key={kernel.id}
      {...{ kernel, tools }}
      folder={folders.get(kernel.id) ?? null}
      shortId={ids.get(kernel.id) ?? null}
      isMine={kernel.owner === status.user.name}
      showsDevice={status.devices.length > 1}
    />
  );
  return (
    <>
      <GpuLimitLine limit={status.user.gpu_limit ?? null} trans={trans} />
      <QueueLine status={status} kernels={kernels} trans={trans} />
      {listed.length === 0 ? (
        <NoKernels trans={trans} />
      ) : showsOwners(status) ? (
        byOwner(listed, status.user.name).map(group => (
          <OwnerGroup key={group.owner} group={group} trans={trans} entry={entry} />
        ))
      ) : (
        <ul className="aliquot-List" aria-label={trans.__('GPU kernels')}>
          {listed.map(entry)}
        </ul>
      )}
      <SharedKernels kernels={shared} {...{ trans, entry }} />
    </>
  );
}

function NoKernels({ trans }: { trans: TranslationBundle }): JSX.Element {
  return (
    <p className="aliquot-Empty">
      {trans.__('No kernel has a GPU. Choose a kernel with a GPU size in the launcher to start one.')}
    </p>
  );
}
