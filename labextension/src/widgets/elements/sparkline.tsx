// The last minutes of one figure as a small line. Its words say the least, the most and what is so now.

import * as React from 'react';

import { draw } from '../../history/recent';

interface ISparklineProps {
  /** As a screen reader says it: what, since when, within which bounds. */
  label: string;
  /** Beside the line: what is so now. */
  now: string;
  values: readonly (number | null)[];
  whole: number;
}

const HEIGHT = 20;

export function Sparkline({ label, now, values, whole }: ISparklineProps): JSX.Element {
  const { line, area, width } = draw(values, whole, HEIGHT - 2);
  return (
    <div className="aliquot-Sparkline" title={label}>
      <span className="aliquot-Sparkline-now">{now}</span>
      <svg
        className="aliquot-Sparkline-chart"
        role="img"
        aria-label={label}
        viewBox={`0 -1 ${width} ${HEIGHT}`}
        preserveAspectRatio="none"
      >
        <path className="aliquot-Sparkline-area" d={area} />
        <path className="aliquot-Sparkline-line" d={line} />
      </svg>
    </div>
  );
}
