// The kernels of one user, with sums, for administrators. The user's own group is open, others are
// closed.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IOwnerGroup } from '../../model/kernel_groups';
import { formatBytes, formatShare } from '../../base/quantities';
import { IKernel } from '../../tokens';

interface IOwnerGroupProps {
  group: IOwnerGroup;
  trans: TranslationBundle;
  entry: (kernel: IKernel) => JSX.Element;
}

export function OwnerGroup({ group, trans, entry }: IOwnerGroupProps): JSX.Element {
  const [isOpen, setOpen] = React.useState(group.isMine);
  const name = group.isMine ? trans.__('%1 (me)', group.owner) : group.owner;
  return (
    <details className="aliquot-Group" open={isOpen} onToggle={event => setOpen(event.currentTarget.open)}>
      <summary className="aliquot-Group-head">
        <span className="aliquot-Group-name">{name}</span>
        <span className="aliquot-Group-sums">{sums(group, trans)}</span>
      </summary>
      {isOpen && (
        <ul
          className="aliquot-List"
          aria-label={group.isMine ? trans.__('GPU kernels') : trans.__('GPU kernels of %1', group.owner)}
        >
          {group.kernels.map(entry)}
        </ul>
      )}
    </details>
  );
}

function sums(group: IOwnerGroup, trans: TranslationBundle): string {
  const said = [
    trans._n('%1 kernel', '%1 kernels', group.kernels.length),
    trans.__('%1 GPU', formatShare(group.gpus)),
    trans.__('%1 used', formatBytes(group.usedBytes))
  ];
  if (group.swappedBytes > 0) {
    said.push(trans.__('%1 swapped', formatBytes(group.swappedBytes)));
  }
  if (group.waiting > 0) {
    said.push(trans.__('%1 waiting', String(group.waiting)));
  }
  return said.join(' · ');
}
