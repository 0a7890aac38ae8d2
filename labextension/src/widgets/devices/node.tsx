// Facts about the whole machine: the enforcer of limits and, for administrators, its host memory.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { formatBytes, formatPart, formatShare } from '../../base/quantities';
import { IHostCopies, IStatus } from '../../tokens';
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
  return (
    <div className="aliquot-Node">
      <Facts said={said} />
    </div>
  );
}

function hostCopies(copies: IHostCopies, trans: TranslationBundle): string {
  const used =
    copies.budget_bytes === null
      ? trans.__('host memory for swapped kernels: %1', formatBytes(copies.used_bytes))
      : trans.__('host memory for swapped kernels: %1 of %2', ...formatPart(copies.used_bytes, copies.budget_bytes));
  return copies.spilled_bytes > 0 ? trans.__('%1, %2 of it in files', used, formatBytes(copies.spilled_bytes)) : used;
}
