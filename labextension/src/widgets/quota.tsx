// What of GPUs the asker may hold at once, what of it is held and what is left. Nothing where no limit is told.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { formatShare } from '../quantities';
import { IUserQuota } from '../tokens';
import { PartsBar } from './bar';

export function QuotaLine({ quota, trans }: { quota: IUserQuota | null; trans: TranslationBundle }): JSX.Element | null {
  if (quota === null || quota.gpus === null) {
    return null;
  }
  const left = quota.left_gpus ?? Math.max(0, quota.gpus - quota.held_gpus);
  const text = trans.__(
    'My quota: %1 of %2 GPU held, %3 left',
    formatShare(quota.held_gpus),
    formatShare(quota.gpus),
    formatShare(left)
  );
  return (
    <div className="aliquot-Quota">
      <p className="aliquot-Item-line">{text}</p>
      <PartsBar
        label={trans.__('My quota')}
        text={text}
        value={quota.held_gpus}
        whole={quota.gpus}
        parts={[{ kind: left > 0 ? 'mine' : 'tight', amount: quota.held_gpus }]}
        isThin
      />
    </div>
  );
}
