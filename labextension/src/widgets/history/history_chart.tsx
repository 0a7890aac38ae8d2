// A chart over time: stacked areas or a single one, with a cursor that mouse and arrow keys move.

import * as React from 'react';

import { areaPath, axis } from '../../history/history_series';

export interface IArea {
  readonly key: string;
  readonly upper: readonly number[];
  readonly lower: readonly number[] | null;
  readonly className: string;
}

interface IChartProps {
  areas: readonly IArea[];
  known: readonly boolean[];
  /** The largest value, and the unit of round axis marks. */
  most: number;
  unit: number;
  format: (value: number) => string;
  /** Steps with a label below them. */
  times: readonly { step: number; text: string }[];
  label: string;
  /** The text of a step for screen readers. */
  describe: (step: number) => string;
  moment: number | null;
  onMoment: (step: number | null) => void;
  isSmall?: boolean;
}

export function HistoryChart(props: IChartProps): JSX.Element {
  const { known } = props;
  const { end, marks } = axis(props.most, props.unit);
  return (
    <div className="aliquot-Chart" data-small={props.isSmall || undefined}>
      <div className="aliquot-Chart-marks" aria-hidden="true">
        {marks.map((mark, place) => (
          <span key={place} style={{ bottom: `${(100 * mark) / end}%` }}>
            {props.format(mark)}
          </span>
        ))}
      </div>
      <Plot {...props} end={end} />
      <div className="aliquot-Chart-times" aria-hidden="true">
        {props.times.map(({ step, text }) => (
          <span key={step} style={{ left: `${(100 * step) / known.length}%` }}>
            {text}
          </span>
        ))}
      </div>
    </div>
  );
}

function Plot(props: IChartProps & { end: number }): JSX.Element {
  const { areas, known, end, moment, onMoment } = props;
  const steps = known.length;
  const paths = React.useMemo(
    () => areas.map(area => areaPath(area.upper, area.lower, known, end)),
    [areas, known, end]
  );
  const at = moment ?? steps - 1;
  return (
    <div
      className="aliquot-Chart-plot"
      role="slider"
      tabIndex={0}
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={Math.max(steps - 1, 0)}
      aria-valuenow={Math.max(at, 0)}
      aria-valuetext={props.describe(at)}
      onKeyDown={event => {
        const next = moved(event.key, at, steps);
        if (next !== null) {
          event.preventDefault();
          onMoment(next);
        }
      }}
      onMouseMove={event => {
        const box = event.currentTarget.getBoundingClientRect();
        onMoment(Math.min(Math.max(Math.floor((steps * (event.clientX - box.left)) / box.width), 0), steps - 1));
      }}
      onMouseLeave={() => onMoment(null)}
      onBlur={() => onMoment(null)}
    >
      <svg viewBox={`0 0 ${Math.max(steps, 1)} 100`} preserveAspectRatio="none" aria-hidden="true">
        {areas.map((area, place) => (
          <path key={area.key} className={area.className} d={paths[place]} />
        ))}
      </svg>
      {moment !== null && (
        <span className="aliquot-Chart-moment" style={{ left: `${(100 * (moment + 0.5)) / steps}%` }} />
      )}
    </div>
  );
}

/** The step to which a key moves the cursor; null for other keys. */
function moved(key: string, at: number, steps: number): number | null {
  const far = Math.max(Math.round(steps / 20), 1);
  const by: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageDown: -far, PageUp: far, Home: -steps, End: steps };
  const change = by[key];
  return change === undefined ? null : Math.min(Math.max(at + change, 0), steps - 1);
}
