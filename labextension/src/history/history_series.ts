// Computes the layers of the history's charts: use by kernel, stacked, and by device. Pure.

import { IHistory } from '../tokens';

/**
 * The figure that a chart shows: busy GPUs, GPU memory in use, or host memory of swapped-out
 * kernels.
 */
export type HistoryFigure = 'time' | 'memory' | 'copies';

export type Range = IHistory['range'];

type Column = readonly (number | null)[];

/** The layer of one kernel, or of all kernels that are too small for a layer of their own. */
export interface ILayer {
  /** The kernel's id and owner; empty for the rest. */
  readonly key: string;
  readonly label: string;
  readonly owner: string;
  /** The number of kernels in this layer. */
  readonly count: number;
  /** The mean of each step, in GPUs or bytes. */
  readonly values: Column;
  /** The sum of GPU seconds. */
  readonly gpuSeconds: number;
  /** The largest value in bytes: of GPU memory, or of host memory if host copies are shown. */
  readonly peakBytes: number;
}

/** A device's utilisation and memory. */
export interface IDeviceLine {
  readonly uuid: string;
  readonly index: number;
  readonly name: string;
  /** Per cent in each step. */
  readonly mean: Column;
  readonly most: Column;
  readonly meanPercent: number | null;
  readonly peakBytes: number;
}

/**
 * Return one layer for each of the kernels that used the most, in descending order, and one for all
 * others.
 */
export function layersOf(history: IHistory, figure: HistoryFigure, most: number): ILayer[] {
  const all = history.kernels.map(kernel => Private.layer(kernel, figure));
  const weight = (layer: ILayer): number => (figure === 'time' ? layer.gpuSeconds : layer.peakBytes);
  const sorted = all
    .filter(layer => layer.peakBytes > 0 || (figure !== 'copies' && layer.gpuSeconds > 0))
    .sort((a, b) => weight(b) - weight(a) || a.key.localeCompare(b.key));
  if (sorted.length <= most) {
    return sorted;
  }
  return [...sorted.slice(0, most - 1), Private.together(sorted.slice(most - 1))];
}

export function deviceLines(history: IHistory): IDeviceLine[] {
  return history.devices.map(device => {
    const { utilization_percent: utilization, used_bytes: used } = device.figures;
    return {
      uuid: device.uuid,
      index: device.index,
      name: device.name,
      mean: utilization.mean,
      most: utilization.max,
      meanPercent: Private.meanOver(utilization.mean, device.known_seconds),
      peakBytes: Private.greatest(used.max)
    };
  });
}

/** Whether each step has data; a step without any is a gap, not a zero. */
export function knownSteps(history: IHistory): boolean[] {
  const columns: Column[] = [...history.devices, ...history.kernels].map(subject => subject.known_seconds);
  const steps = columns.reduce((most, column) => Math.max(most, column.length), 0);
  return Array.from({ length: steps }, (_, step) => columns.some(column => (column[step] ?? 0) > 0));
}

/**
 * The upper edge of each layer in each step; its lower edge is the upper edge of the layer before.
 */
export function stack(layers: readonly ILayer[], steps: number): number[][] {
  const edge: number[] = new Array<number>(steps).fill(0);
  return layers.map(layer => {
    layer.values.forEach((value, step) => {
      edge[step] = (edge[step] ?? 0) + (value ?? 0);
    });
    return [...edge];
  });
}

/** The end of an axis with `marks` round marks from 0 to that end. */
export function axis(most: number, unit: number): { end: number; marks: number[] } {
  const wanted = Math.max(most / unit, 1e-9);
  const power = 10 ** Math.floor(Math.log10(wanted));
  const end = ([1, 2, 2.5, 5, 10].find(factor => factor * power >= wanted * 0.999) ?? 10) * power;
  return { end: end * unit, marks: [0, 0.5, 1].map(part => part * end * unit) };
}

/**
 * The area between two edges, as an SVG path in steps by `end`, the origin on top left; gaps are
 * left out.
 */
export function areaPath(upper: readonly number[], lower: readonly number[] | null, known: readonly boolean[], end: number): string {
  return Private.runs(known)
    .map(([from, to]) => {
      const there: string[] = [];
      const back: string[] = [];
      for (let step = from; step < to; step += 1) {
        const top = Private.height(upper[step] ?? 0, end);
        const bottom = Private.height(lower?.[step] ?? 0, end);
        there.push(`${step},${top} ${step + 1},${top}`);
        back.unshift(`${step + 1},${bottom} ${step},${bottom}`);
      }
      return `M${there.join(' ')} ${back.join(' ')}Z`;
    })
    .join('');
}

/** The start time of each step. */
export function stepTime(history: IHistory, step: number): Date {
  return new Date(new Date(history.start).getTime() + step * history.step_seconds * 1000);
}

/** Indices of the steps that get a label, evenly spread and away from the edges. */
export function timeMarks(steps: number, count: number): number[] {
  return Array.from({ length: count }, (_, mark) => Math.round(((mark + 0.5) * steps) / count)).filter(
    (step, place, all) => step < steps && all.indexOf(step) === place
  );
}

/** Assigns one of `count` colors to each key; a key keeps its color. */
export class Colours {
  constructor(private readonly _count: number) {}

  of(keys: readonly string[]): Map<string, number> {
    const kept = new Map([...this._given].filter(([key]) => keys.includes(key)));
    for (const key of keys.filter(key => !kept.has(key))) {
      const taken = new Set(kept.values());
      const free = Array.from({ length: this._count }, (_, colour) => colour).find(colour => !taken.has(colour));
      kept.set(key, free ?? kept.size % this._count);
    }
    this._given = kept;
    return new Map(kept);
  }

  private _given = new Map<string, number>();
}

namespace Private {
  const HEIGHT = 100;

  export function layer(kernel: IHistory['kernels'][number], figure: HistoryFigure): ILayer {
    const { used_bytes: used, swapped_bytes: swapped } = kernel.figures;
    const time = ownTime(kernel);
    // A kernel's charge includes swapped-out memory, which is not on its GPU.
    const values = {
      time,
      memory: onGpu(used.mean, swapped.mean),
      copies: swapped.mean
    };
    return {
      key: `${kernel.id} ${kernel.owner}`,
      label: kernel.label || kernel.name || kernel.id.slice(0, 8),
      owner: kernel.owner,
      count: 1,
      values: values[figure],
      gpuSeconds: time.reduce<number>((sum, gpus, step) => sum + (gpus ?? 0) * (kernel.known_seconds[step] ?? 0), 0),
      peakBytes: greatest(figure === 'copies' ? swapped.max : onGpu(used.max, swapped.min))
    };
  }

  /** The kernel's own GPU time, as the accounting counts it; the driver's count where no agent tells the other. */
  function ownTime({ figures: { own_gpus: own, busy_gpus: busy } }: IHistory['kernels'][number]): Column {
    return busy.mean.map((gpus, step) => own.mean[step] ?? gpus);
  }

  function onGpu(used: Column, swapped: Column): Column {
    return used.map((bytes, step) => (bytes === null ? null : Math.max(0, bytes - (swapped[step] ?? 0))));
  }

  export function together(layers: readonly ILayer[]): ILayer {
    const steps = layers.reduce((most, layer) => Math.max(most, layer.values.length), 0);
    return {
      key: '',
      label: '',
      owner: '',
      count: layers.length,
      values: Array.from({ length: steps }, (_, step) => layers.reduce((sum, layer) => sum + (layer.values[step] ?? 0), 0)),
      gpuSeconds: layers.reduce((sum, layer) => sum + layer.gpuSeconds, 0),
      peakBytes: layers.reduce((most, layer) => Math.max(most, layer.peakBytes), 0)
    };
  }

  export function greatest(column: Column): number {
    return column.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
  }

  /** The mean, weighted by the seconds with data. */
  export function meanOver(column: Column, seconds: Column): number | null {
    let sum = 0;
    let seen = 0;
    column.forEach((value, step) => {
      if (value !== null) {
        sum += value * (seconds[step] ?? 0);
        seen += seconds[step] ?? 0;
      }
    });
    return seen > 0 ? sum / seen : null;
  }

  /** Runs of steps with data, each as [first, last + 1]. */
  export function runs(known: readonly boolean[]): [number, number][] {
    const found: [number, number][] = [];
    known.forEach((is, step) => {
      const last = found[found.length - 1];
      if (is && last && last[1] === step) {
        last[1] = step + 1;
      } else if (is) {
        found.push([step, step + 1]);
      }
    });
    return found;
  }

  export function height(value: number, end: number): string {
    return String(Math.round(10 * (HEIGHT - (HEIGHT * Math.min(Math.max(value, 0), end)) / end)) / 10);
  }
}
