// Utilization of each device over time: one small chart per device, with mean and maximum.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { deviceLines, IDeviceLine } from '../../history/history_series';
import { formatBytes } from '../../base/quantities';
import { IHistory } from '../../tokens';
import { HistoryChart } from './history_chart';
import { momentText, timesOf } from './history_kernels';
import { Facts } from '../elements/facts';

interface IProps {
  history: IHistory;
  trans: TranslationBundle;
}

export function DeviceCharts({ history, trans }: IProps): JSX.Element {
  const lines = React.useMemo(() => deviceLines(history), [history]);
  return (
    <>
      <h2>{trans.__('Utilization of devices')}</h2>
      {lines.length === 0 && <p className="aliquot-History-note">{trans.__('No GPU was seen in this time.')}</p>}
      {lines.map((line, place) => (
        <DeviceChart key={line.uuid} history={history} line={line} isLast={place === lines.length - 1} trans={trans} />
      ))}
    </>
  );
}

function DeviceChart({ history, line, isLast, trans }: IProps & { line: IDeviceLine; isLast: boolean }): JSX.Element {
  const [moment, setMoment] = React.useState<number | null>(null);
  const known = React.useMemo(() => line.mean.map(value => value !== null), [line]);
  const areas = React.useMemo(() => {
    const zeros = (column: readonly (number | null)[]): number[] => column.map(value => value ?? 0);
    return [
      { key: 'most', upper: zeros(line.most), lower: null, className: 'aliquot-Area-most' },
      { key: 'mean', upper: zeros(line.mean), lower: null, className: 'aliquot-Area-0' }
    ];
  }, [line]);
  const percent = (value: number): string => `${Math.round(value)}%`;
  const at = moment === null ? null : line.mean[moment] ?? null;
  const name = trans.__('GPU %1', String(line.index));
  const said = [
    ...(line.meanPercent === null ? [] : [trans.__('mean %1', percent(line.meanPercent))]),
    trans.__('peak memory %1', formatBytes(line.peakBytes)),
    ...(moment === null ? [] : [`${momentText(history, moment)}: ${at === null ? '–' : percent(at)}`])
  ];
  return (
    <>
      <div className="aliquot-History-device">
        <span title={`${line.name}\n${line.uuid}`}>
          {name} · {line.name}
        </span>
        <Facts said={said} />
      </div>
      <HistoryChart
        areas={areas}
        known={known}
        most={100}
        unit={1}
        format={percent}
        times={isLast ? timesOf(history, known.length) : []}
        label={trans.__('Utilization of GPU %1', String(line.index))}
        describe={step => {
          const value = line.mean[step] ?? null;
          return `${momentText(history, step)}: ${value === null ? trans.__('not known') : percent(value)}`;
        }}
        moment={moment}
        onMoment={setMoment}
        isSmall
      />
    </>
  );
}
