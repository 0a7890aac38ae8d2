// The legend of the devices' bars: only patterns that are in use.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IDeviceParts } from '../../model/device_parts';
import { BarPart } from '../elements/bar';

interface ILegendProps {
  parts: readonly IDeviceParts[];
  trans: TranslationBundle;
}

export function Legend({ parts, trans }: ILegendProps): JSX.Element {
  const has = (kind: keyof IDeviceParts): boolean => parts.some(one => one[kind] > 0);
  const entries: [BarPart | 'free', boolean, string, string][] = [
    ['mine', true, trans.__('yours'), trans.__('In use by your kernels')],
    ['others', has('others') || has('othersBurstable'), trans.__('others'), trans.__('In use by other users')],
    [
      has('mineBurstable') ? 'mine-burstable' : 'others-burstable',
      has('mineBurstable') || has('othersBurstable'),
      trans.__('burstable'),
      trans.__('Beyond guaranteed memory: evicted when another kernel needs it')
    ],
    [
      has('mineHeld') ? 'mine-held' : 'others-held',
      has('mineHeld') || has('othersHeld'),
      trans.__('guaranteed, unused'),
      trans.__('Guaranteed to kernels that do not use it now')
    ],
    [
      has('mineSwapped') ? 'mine-swapped' : 'others-swapped',
      has('mineSwapped') || has('othersSwapped'),
      trans.__('swapped out'),
      trans.__('In host memory: the next use restores it')
    ],
    ['free', true, trans.__('free'), trans.__('Not guaranteed to any kernel')]
  ];
  return (
    <ul className="aliquot-Legend" aria-label={trans.__('Legend of the bars')}>
      {entries.map(
        ([kind, isShown, word, hint]) =>
          isShown && (
            <li key={kind} title={hint}>
              <span className={`aliquot-Legend-swatch aliquot-Bar-part aliquot-mod-${kind}`} aria-hidden="true" />
              {word}
              <span className="jp-sr-only">: {hint}</span>
            </li>
          )
      )}
    </ul>
  );
}
