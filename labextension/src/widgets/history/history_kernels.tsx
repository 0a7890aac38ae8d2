// Use over time by kernel: a stacked area chart, and a table that names the kernels.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Colours, HistoryFigure, ILayer, knownSteps, layersOf, stack, stepTime, timeMarks } from '../../history/history_series';
import { formatBytes, formatSeconds, formatShare } from '../../base/quantities';
import { IHistory } from '../../tokens';
import { HistoryChart } from './history_chart';

const MOST_LAYERS = 8;
const GIB = 2 ** 30;

interface IProps {
  history: IHistory;
  figure: HistoryFigure;
  trans: TranslationBundle;
  colours: Colours;
}

export function KernelChart({ history, figure, trans, colours }: IProps): JSX.Element {
  const [moment, setMoment] = React.useState<number | null>(null);
  const layers = React.useMemo(() => layersOf(history, figure, MOST_LAYERS), [history, figure]);
  const known = React.useMemo(() => knownSteps(history), [history]);
  const given = colours.of(layers.map(layer => layer.key));
  const classes = layers.map(layer => `aliquot-Area-${given.get(layer.key) ?? 0}`);
  const areas = React.useMemo(() => {
    const edges = stack(layers, known.length);
    return edges.map((upper, place) => ({
      key: layers[place]?.key ?? '',
      upper,
      lower: edges[place - 1] ?? null,
      className: classes[place] ?? ''
    }));
    // The CSS classes depend on the layers.
  }, [layers, known]);
  const format = (value: number): string =>
    figure === 'time' ? trans.__('%1 GPU', formatShare(value)) : formatBytes(value);
  const title = titleOf(figure, trans);
  if (layers.length === 0) {
    return (
      <>
        <h2>{title}</h2>
        <p className="aliquot-History-note">
          {figure === 'copies'
            ? trans.__('No kernel was swapped out in this time.')
            : trans.__('No kernel used a GPU in this time.')}
        </p>
      </>
    );
  }
  const top = areas[areas.length - 1]?.upper ?? [];
  return (
    <>
      <h2>{title}</h2>
      <HistoryChart
        areas={areas}
        known={known}
        most={Math.max(...top, figure === 'time' ? 0.1 : GIB / 16)}
        unit={figure === 'time' ? 1 : GIB}
        format={format}
        times={timesOf(history, known.length)}
        label={title}
        describe={step => describe(history, layers, step, format, trans)}
        moment={moment}
        onMoment={setMoment}
      />
      <LayerTable {...{ history, figure, layers, classes, moment, format, trans }} />
      {history.omitted > 0 && (
        <p className="aliquot-History-note">
          {trans._n(
            '%1 kernel or GPU that used less is left out.',
            '%1 kernels and GPUs that used less are left out.',
            history.omitted
          )}
        </p>
      )}
    </>
  );
}

/** The labels below the chart: times of day, with the date if the range has more than one. */
export function timesOf(history: IHistory, steps: number): { step: number; text: string }[] {
  const clock: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  const day: Intl.DateTimeFormatOptions = { weekday: 'short', day: 'numeric' };
  return timeMarks(steps, history.range === 'week' ? 7 : 6).map(step => ({
    step,
    text: stepTime(history, step).toLocaleString([], history.range === 'week' ? day : clock)
  }));
}

export function momentText(history: IHistory, step: number): string {
  const seconds: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  const day: Intl.DateTimeFormatOptions = { ...seconds, weekday: 'short' };
  return stepTime(history, step).toLocaleString([], history.range === 'hour' ? { ...seconds, second: '2-digit' } : day);
}

function describe(
  history: IHistory,
  layers: readonly ILayer[],
  step: number,
  format: (value: number) => string,
  trans: TranslationBundle
): string {
  const said = layers.filter(layer => (layer.values[step] ?? 0) > 0);
  const words = said.map(layer => `${nameOf(layer, trans)} ${format(layer.values[step] ?? 0)}`);
  return `${momentText(history, step)}: ${words.join(', ') || trans.__('nothing')}`;
}

function nameOf(layer: ILayer, trans: TranslationBundle): string {
  return layer.key === '' ? trans._n('%1 other kernel', '%1 other kernels', layer.count) : layer.label;
}

interface ITableProps {
  history: IHistory;
  figure: HistoryFigure;
  layers: readonly ILayer[];
  classes: readonly string[];
  moment: number | null;
  format: (value: number) => string;
  trans: TranslationBundle;
}

function LayerTable({ history, figure, layers, classes, moment, format, trans }: ITableProps): JSX.Element {
  const hasOwners = new Set(history.kernels.map(kernel => kernel.owner)).size > 1;
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">{trans.__('Kernel')}</th>
          {hasOwners && (
            <th scope="col" data-text>
              {trans.__('Owner')}
            </th>
          )}
          <th scope="col">{moment === null ? lastText(history, trans) : momentText(history, moment)}</th>
          <th scope="col">{trans.__('GPU time')}</th>
          <th scope="col">{figure === 'copies' ? trans.__('Peak host copy') : trans.__('Peak GPU memory')}</th>
        </tr>
      </thead>
      <tbody>
        {layers.map((layer, place) => (
          <tr key={layer.key}>
            <td title={nameOf(layer, trans)}>
              <span className={`aliquot-History-swatch ${classes[place]}`} />
              {nameOf(layer, trans)}
            </td>
            {hasOwners && (
              <td data-text title={layer.owner}>
                {layer.owner}
              </td>
            )}
            <td>{valueText(layer.values[moment ?? layer.values.length - 1], format)}</td>
            <td>{formatSeconds(layer.gpuSeconds)}</td>
            <td>{formatBytes(layer.peakBytes)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The label of the last step: a mean over minutes is not the current value. */
function lastText({ step_seconds: seconds }: IHistory, trans: TranslationBundle): string {
  return seconds < 60 ? trans.__('Now') : trans.__('Last %1', formatSeconds(seconds));
}

function titleOf(figure: HistoryFigure, trans: TranslationBundle): string {
  switch (figure) {
    case 'time':
      return trans.__('GPU time of kernels');
    case 'memory':
      return trans.__('GPU memory of kernels');
    case 'copies':
      return trans.__('Host copies of kernels');
  }
}

function valueText(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? '–' : format(value);
}
