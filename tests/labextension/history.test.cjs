// The figures of the history page, and its requests, without a browser. Run by test_model.py.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const compiled = process.env.ALIQUOT_COMPILED;
const series = require(path.join(compiled, 'history/history_series.js'));
const { HistoryModel } = require(path.join(compiled, 'history/history_model.js'));
const { StatusError } = require(path.join(compiled, 'tokens.js'));

const column = (...values) => ({ min: values, mean: values, max: values });

function aKernel(id, busy, used = busy.map(() => 0), changes = {}) {
  return {
    id,
    owner: 'ada',
    label: `${id}.ipynb`,
    name: 'python3.gpu-0.25',
    known_seconds: busy.map(value => (value === null ? null : 10)),
    figures: {
      busy_gpus: column(...busy),
      own_gpus: column(...busy.map(() => null)),
      used_bytes: column(...used),
      swapped_bytes: column(...busy.map(() => 0))
    },
    ...changes
  };
}

function aDevice(utilization) {
  return {
    uuid: 'GPU-0',
    index: 0,
    name: 'A GPU',
    known_seconds: utilization.map(value => (value === null ? null : 10)),
    figures: { utilization_percent: column(...utilization), used_bytes: column(...utilization.map(() => 5)) }
  };
}

function aHistory(changes = {}) {
  return { range: 'hour', start: '2026-01-01T00:00:00Z', step_seconds: 10, kernels: [], devices: [], omitted: 0, ...changes };
}

test('who used the most comes first; the small ones are one layer that adds up', () => {
  const kernels = [aKernel('a', [0.1, 0.1]), aKernel('b', [0.5, null]), aKernel('c', [0.2, 0.2]), aKernel('idle', [0, 0])];
  const layers = series.layersOf(aHistory({ kernels }), 'time', 2);
  assert.deepEqual(
    layers.map(layer => [layer.label, layer.count]),
    [
      ['b.ipynb', 1],
      ['', 2]
    ]
  );
  assert.equal(layers[0].gpuSeconds, 5);
  assert.ok(Math.abs(layers[1].gpuSeconds - 6) < 1e-9);
  assert.ok(Math.abs(layers[1].values[1] - 0.3) < 1e-9);
  assert.equal(series.layersOf(aHistory({ kernels }), 'time', 8).length, 3, 'who used nothing is not shown');
});

test('GPU time is the kernel\'s own, as in the table of aliquot history and in the accounting', () => {
  const kernel = aKernel('a', [0.5, 0.5]);
  kernel.figures.own_gpus = column(0.2, null);
  const [layer] = series.layersOf(aHistory({ kernels: [kernel] }), 'time', 8);
  assert.deepEqual(layer.values, [0.2, 0.5]);
  assert.equal(layer.gpuSeconds, 7);
});

test('by memory, the largest peak comes first', () => {
  const kernels = [aKernel('a', [1], [10]), aKernel('b', [0], [70])];
  assert.deepEqual(series.layersOf(aHistory({ kernels }), 'memory', 8).map(layer => layer.peakBytes), [70, 10]);
});

test('memory that is swapped out is not on the GPU, and stands in host copies', () => {
  const away = aKernel('away', [0, 0, 0], [8, 8, 8]);
  const swapped = { min: [0, 0, 8], mean: [0, 4, 8], max: [0, 8, 8] };
  const kernels = [{ ...away, figures: { ...away.figures, swapped_bytes: swapped } }, aKernel('here', [0.5, 0.5, null], [2, 2, null])];
  const shown = figure => series.layersOf(aHistory({ kernels }), figure, 8).map(layer => [layer.label, layer.values, layer.peakBytes]);
  assert.deepEqual(shown('memory'), [
    ['away.ipynb', [8, 4, 0], 8],
    ['here.ipynb', [2, 2, null], 2]
  ]);
  assert.deepEqual(shown('copies'), [['away.ipynb', [0, 4, 8], 8]]);
});

test('edges add up over layers, a gap of one kernel being nothing', () => {
  const kernels = [aKernel('a', [0.5, 0.5]), aKernel('b', [0.25, null])];
  const layers = series.layersOf(aHistory({ kernels }), 'time', 8);
  assert.deepEqual(series.stack(layers, 2), [
    [0.5, 0.5],
    [0.75, 0.5]
  ]);
});

test('a step that nobody saw is a gap in the area, and no zero', () => {
  const history = aHistory({ kernels: [aKernel('a', [1, null, 1])], devices: [aDevice([50, null, 50])] });
  const known = series.knownSteps(history);
  assert.deepEqual(known, [true, false, true]);
  const drawn = series.areaPath([1, 0, 1], null, known, 2);
  assert.equal(drawn, 'M0,50 1,50 1,100 0,100ZM2,50 3,50 3,100 2,100Z');
  assert.equal(series.areaPath([], null, [], 1), '');
});

test('a device has its mean over the time that was seen', () => {
  const [line] = series.deviceLines(aHistory({ devices: [aDevice([100, null, 50])] }));
  assert.equal(line.meanPercent, 75);
  assert.equal(line.peakBytes, 5);
  assert.equal(series.deviceLines(aHistory({ devices: [aDevice([null])] }))[0].meanPercent, null);
});

test('an axis ends at a round number that holds everything', () => {
  for (const most of [0.004, 0.1, 0.26, 1, 1.5, 2.4, 7, 64, 990]) {
    const { end, marks } = series.axis(most, 1);
    assert.ok(end >= most * 0.998 && end <= most * 2.6, `${most}: ${end}`);
    assert.deepEqual(marks, [0, end / 2, end]);
  }
  assert.equal(series.axis(3 * 2 ** 30, 2 ** 30).end, 5 * 2 ** 30);
  assert.ok(series.axis(0, 1).end > 0);
});

test('a kernel keeps its colour while others come and go', () => {
  const colours = new series.Colours(3);
  assert.deepEqual([...colours.of(['a', 'b']).values()], [0, 1]);
  const later = colours.of(['b', 'c']);
  assert.equal(later.get('b'), 1);
  assert.equal(later.get('c'), 0);
  assert.equal(new Set(colours.of(['b', 'c', 'd']).values()).size, 3);
});

test('marks of time are spread, and none is twice', () => {
  assert.deepEqual(series.timeMarks(360, 6), [30, 90, 150, 210, 270, 330]);
  assert.deepEqual(series.timeMarks(2, 6), [0, 1]);
});

/** A source whose answers the test gives. */
class ASource {
  asked = [];
  history(range) {
    return new Promise((resolve, reject) => this.asked.push({ range, resolve, reject }));
  }
}

const settled = () => new Promise(resolve => setImmediate(resolve));

async function aWatchedModel() {
  const source = new ASource();
  const model = new HistoryModel(source);
  model.isWatched = true;
  while (source.asked.length === 0) {
    await settled();
  }
  return { source, model };
}

test('nobody looking means no request', async () => {
  const source = new ASource();
  const model = new HistoryModel(source);
  await settled();
  assert.equal(source.asked.length, 0);
  model.dispose();
});

test('an answer for a range that was left is dropped', async () => {
  const { source, model } = await aWatchedModel();
  model.range = 'week';
  source.asked[0].resolve(aHistory());
  while (source.asked.length < 2) {
    await settled();
  }
  assert.equal(model.state.history, null);
  assert.equal(source.asked[1].range, 'week');
  const week = aHistory({ range: 'week', step_seconds: 900 });
  source.asked[1].resolve(week);
  await settled();
  assert.equal(model.state.history, week);
  model.dispose();
});

test('a failure is said, and what was known stays', async () => {
  const { source, model } = await aWatchedModel();
  const hour = aHistory();
  source.asked[0].resolve(hour);
  await settled();
  void model.refresh();
  while (source.asked.length < 2) {
    await settled();
  }
  source.asked[1].reject(new StatusError('server', 'the disk is full'));
  await settled();
  assert.equal(model.state.history, hour);
  assert.equal(model.state.problem.message, 'the disk is full');
  model.dispose();
});
