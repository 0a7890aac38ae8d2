// Facts about the whole machine: the enforcer of limits and, for administrators, its host memory.
// The gateway's nodes on other machines have one fact each.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { formatBytes, formatPart, formatShare } from '../../base/quantities';
import { IHostCopies, IRemoteNode, IStatus } from '../../tokens';
import { Facts } from '../elements/facts';

export function NodeFacts({ status, trans }: { status: IStatus; trans: TranslationBundle }): JSX.Element {
  const { node, user } = status;
  const said: string[] = [];
  if (node.enforcer) {
    said.push(trans.__('memory limits: %1', node.enforcer));
  }
  const refused = status.devices.find(one => !one.lost && one.overcommit <= 1 && one.overcommit_reason);
  if (refused) {
    said.push(trans.__('GPU %1 is not overcommitted: %2', refused.index, refused.overcommit_reason));
  }
  if (user.role === 'admin') {
    said.push(trans.__('node %1', node.name));
    if (node.overcommit > 1) {
      said.push(trans.__('overcommit: up to %1 times its memory', formatShare(node.overcommit)));
    }
    if (node.host_copies && node.host_copies.used_bytes > 0) {
      said.push(hostCopies(node.host_copies, trans));
    }
  }
  // A gateway of an earlier version tells no nodes.
  said.push(...(status.nodes ?? []).map(one => otherNode(one, trans)));
  return (
    <div className="aliquot-Node">
      <Facts said={said} />
    </div>
  );
}

function otherNode(node: IRemoteNode, trans: TranslationBundle): string {
  if (node.state === 'unknown') {
    return trans.__('node %1: unknown, its agent does not answer', node.name);
  }
  const devices = node.devices.filter(one => !one.lost);
  const reserved = devices.reduce((sum, one) => sum + one.reserved_gpus, 0);
  return trans.__('node %1: %2 GPU of %3 reserved', node.name, formatShare(reserved), devices.length);
}

function hostCopies(copies: IHostCopies, trans: TranslationBundle): string {
  const used =
    copies.budget_bytes === null
      ? trans.__('host memory for swapped kernels: %1', formatBytes(copies.used_bytes))
      : trans.__('host memory for swapped kernels: %1 of %2', ...formatPart(copies.used_bytes, copies.budget_bytes));
  return copies.spilled_bytes > 0 ? trans.__('%1, %2 of it in files', used, formatBytes(copies.spilled_bytes)) : used;
}
