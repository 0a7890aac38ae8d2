// A bar of memory or time: one whole, divided. Says its figures to screen readers; the text beside it says them to eyes.

import * as React from 'react';

import { percent } from '../quantities';

export type BarPart = 'mine' | 'others' | 'held' | 'used' | 'tight';

interface IBarProps {
  label: string;
  /** What a screen reader says instead of the bare number. */
  text: string;
  /** In use, of `whole`. */
  value: number;
  whole: number;
  /** Drawn from the left, one after the other, in the unit of `whole`. The rest stays free. */
  parts: readonly { kind: BarPart; amount: number }[];
}

export function PartsBar(props: IBarProps): JSX.Element {
  return (
    <div
      className="aliquot-Bar"
      role="meter"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={props.whole}
      aria-valuenow={Math.min(props.value, props.whole)}
      aria-valuetext={props.text}
      title={props.text}
    >
      {props.parts.map(part => (
        <span
          key={part.kind}
          className={`aliquot-Bar-part aliquot-mod-${part.kind}`}
          style={{ width: percent(part.amount, props.whole) }}
        />
      ))}
    </div>
  );
}
