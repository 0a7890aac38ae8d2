// A bar of memory or time: one whole, divided. Says its figures to screen readers; the text beside it says them to eyes.
// Parts differ in their pattern, not in colour alone.

import * as React from 'react';

import { percent } from '../../base/quantities';

/** used: where there is nobody else. mine, others: in use. -burstable: beyond guarantees. -held: promised, not used. -swapped: in host memory. */
export type BarPart =
  | 'mine'
  | 'mine-burstable'
  | 'mine-held'
  | 'mine-swapped'
  | 'others'
  | 'others-burstable'
  | 'others-held'
  | 'others-swapped'
  | 'used'
  | 'tight';

interface IBarProps {
  label: string;
  /** What a screen reader says instead of the bare number. */
  text: string;
  /** In use, of `whole`. */
  value: number;
  whole: number;
  /** Drawn from the left, one after the other, in the unit of `whole`. The rest stays free. */
  parts: readonly { kind: BarPart; amount: number }[];
  /** For what is told beside another bar. */
  isThin?: boolean;
}

export function PartsBar(props: IBarProps): JSX.Element {
  return (
    <div
      className={`aliquot-Bar${props.isThin ? ' aliquot-mod-thin' : ''}`}
      role="meter"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={props.whole}
      aria-valuenow={Math.min(props.value, props.whole)}
      aria-valuetext={props.text}
      title={props.text}
    >
      {props.parts.map(part => part.amount > 0 && <Part key={part.kind} {...part} whole={props.whole} />)}
    </div>
  );
}

function Part({ kind, amount, whole }: { kind: BarPart; amount: number; whole: number }): JSX.Element {
  return <span className={`aliquot-Bar-part aliquot-mod-${kind}`} style={{ width: percent(amount, whole) }} />;
}
