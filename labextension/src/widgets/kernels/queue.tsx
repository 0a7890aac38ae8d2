// The queue: its length, and how many requests are ahead of the user's own kernels. Each entry tells what its
// kernel waits for.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { myPlaces } from '../../model/kernel_groups';
import { IKernel, IStatus } from '../../tokens';

interface IQueueProps {
  status: IStatus;
  kernels: readonly IKernel[];
  trans: TranslationBundle;
}

/** Renders nothing while the queue is empty. */
export function QueueLine({ status, kernels, trans }: IQueueProps): JSX.Element | null {
  const { length } = status.queue;
  const places = myPlaces(kernels, status.user.name);
  if (length === 0 && places.length === 0) {
    return null;
  }
  const all = trans._n('%1 kernel is queued.', '%1 kernels are queued.', Math.max(length, places.length));
  return (
    <p className="aliquot-Queue" role="status">
      {all} {places.length > 0 && where(places, trans)}
    </p>
  );
}

function where(places: readonly number[], trans: TranslationBundle): string {
  return places.length === 1 && places[0] === 1
    ? trans.__('Yours is next.')
    : trans.__('Ahead of yours: %1.', places.map(place => place - 1).join(', '));
}
