// A stacked bar of memory or time. Screen readers get its figures, which the text beside it shows.
// Parts differ by pattern, not by color alone.

import * as React from 'react';

import { percent } from '../../base/quantities';

/**
 * used: of one kernel. mine, others: in use. -burstable: beyond guarantees. -held: guaranteed, not
 * used. -swapped: in host memory.
 */
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
  /** The text for screen readers in place of the number. */
  text: string;
  /** The used part, in the unit of `whole`. */
  value: number;
  whole: number;
  /** The parts from left to right, in the unit of `whole`; the rest is free. */
  parts: readonly { kind: BarPart; amount: number }[];
  /** Whether this is the smaller bar beside another one. */
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
