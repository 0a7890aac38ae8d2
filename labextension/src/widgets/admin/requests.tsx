// The queue: who waits for what, since when, and why.

import * as React from 'react';

import { formatFromNow, formatShare, formatTime } from '../../base/quantities';
import { IQueue, IQueuedRequest, ITranslation } from '../../tokens';
import { UNKNOWN } from './admin_words';
import { Table } from '../elements/table';

export function Requests({ queue, trans }: { queue: IQueue; trans: ITranslation }): JSX.Element {
  const now = new Date();
  return (
    <>
      <h2>{trans.__('Queue')}</h2>
      <Table
        label={trans.__('Queue')}
        empty={trans.__('No request waits.')}
        columns={[
          { title: trans.__('Position') },
          { title: trans.__('Notebook'), isText: true },
          { title: trans.__('Owner'), isText: true },
          { title: trans.__('Team'), isText: true },
          { title: trans.__('For'), isText: true },
          { title: trans.__('GPUs') },
          { title: trans.__('Since') },
          { title: trans.__('Expected start') },
          { title: trans.__('Reason'), isText: true }
        ]}
        rows={queue.requests.map(request => ({
          key: request.kernel_id,
          cells: [
            request.position,
            request.label || request.kernel_id.slice(0, 8),
            request.owner,
            request.team ?? UNKNOWN,
            kindText(request, trans),
            request.priority === 'low' ? trans.__('%1 low', formatShare(request.gpus)) : formatShare(request.gpus),
            formatTime(request.since, now),
            startText(request, now),
            request.reason
          ]
        }))}
      />
    </>
  );
}

function startText({ expected_start: expected, predicted_start: predicted }: IQueuedRequest, now: Date): string {
  if (expected !== null) {
    return formatTime(expected, now);
  }
  // An older gateway predicts none.
  return predicted ? formatFromNow(predicted.earliest, predicted.latest, now) : UNKNOWN;
}

function kindText({ kind }: IQueuedRequest, trans: ITranslation): string {
  switch (kind) {
    case 'start':
      return trans.__('start');
    case 'grow':
      return trans.__('larger size');
    case 'return':
      return trans.__('return after eviction');
  }
}
