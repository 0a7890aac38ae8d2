// A sparkline of one figure over the last minutes. Its label tells minimum, maximum and current
// value.

import * as React from 'react';

import { draw } from '../../history/recent';

interface ISparklineProps {
  /** The label for screen readers: figure, period, minimum and maximum. */
  label: string;
  /** The current value, shown beside the line. */
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
