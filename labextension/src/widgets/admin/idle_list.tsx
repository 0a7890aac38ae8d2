// The ten kernels that hold most GPU time without use, with the way to act on each.

import * as React from 'react';

import { formatBytes } from '../../base/quantities';
import { IHolderKernel, IHolders, ITranslation } from '../../tokens';
import { amountText, bytesText, idleText, nameText, sizeText } from './admin_words';
import { Table } from '../elements/table';

interface IIdleListProps {
  holders: IHolders;
  trans: ITranslation;
  onChoose: (kernel: IHolderKernel) => void;
}

export function IdleList({ holders, trans, onChoose }: IIdleListProps): JSX.Element {
  const kernels = new Map(holders.kernels.map(kernel => [kernel.id, kernel]));
  const found = holders.most_idle.map(id => kernels.get(id)).filter((one): one is IHolderKernel => one !== undefined);
  return (
    <>
      <h2>{trans.__('Most idle')}</h2>
      <Table
        label={trans.__('Most idle')}
        empty={trans.__('No kernel on a GPU is idle.')}
        columns={[
          { title: trans.__('Notebook'), isText: true },
          { title: trans.__('Owner'), isText: true },
          { title: trans.__('GPUs') },
          { title: trans.__('Idle for') },
          { title: trans.__('GPU memory') },
          { title: trans.__('CPUs') },
          { title: trans.__('RAM') },
          { title: trans.__('Actions'), isText: true }
        ]}
        rows={found.map(kernel => ({
          key: kernel.id,
          cells: [
            nameText(kernel),
            kernel.owner,
            sizeText(kernel, trans),
            idleText(kernel.idle_seconds),
            formatBytes(kernel.used_bytes),
            amountText(kernel.host?.cpus ?? null),
            bytesText(kernel.host?.memory_bytes ?? null),
            <button key="act" type="button" onClick={() => onChoose(kernel)}>
              {trans.__('Act on %1…', nameText(kernel))}
            </button>
          ]
        }))}
      />
    </>
  );
}
