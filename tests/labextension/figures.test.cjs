// The meaning of figures, and their text. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { GIB, aKernel, aStatus, compiled, over } = require('./scripts.cjs');
const derived = compiled('model/kernel_facts');
const access = compiled('model/kernel_access');
const compute = compiled('model/compute');
const quantities = compiled('base/quantities');

test('only a path of mine opens a notebook', () => {
  const status = aStatus();
  const path = (label, owner = 'ada') => derived.notebookPath({ label, owner }, status);
  assert.equal(path('models/train.ipynb'), 'models/train.ipynb');
  assert.equal(path('models/train.ipynb', 'bob'), null);
  assert.equal(path('/etc/x.ipynb'), null);
  assert.equal(path('javascript:alert(1)'), null);
  assert.equal(path(''), null);
});

test('a kernel is called by its notebook, its label or its kernelspec', () => {
  const title = (label, name = 'python3.gpu-0.25') => derived.kernelTitle({ id: '0123456789', label, name });
  assert.equal(title('models/train.ipynb'), 'train.ipynb');
  assert.equal(title('nightly run'), 'nightly run');
  assert.equal(title(' '), 'python3.gpu-0.25');
  assert.equal(title('', ''), '01234567');
});

test('a failed self-check gives its reason, a good one none', () => {
  const failure = interception => derived.interceptionFailure({ interception });
  assert.equal(failure('failed: libcuda was loaded first'), 'libcuda was loaded first');
  assert.equal(failure('failed'), 'the self-check failed');
  assert.equal(failure('holds'), null);
  assert.equal(failure('unknown'), null);
});

test('owners show beside kernels of others', () => {
  const status = (...owners) => aStatus({ kernels: owners.map(owner => ({ owner })) });
  assert.equal(access.showsOwners(status()), false);
  assert.equal(access.showsOwners(status('ada', 'ada')), false);
  assert.equal(access.showsOwners(status('ada', 'bob')), true);
});

test('amounts read in binary units', () => {
  const { formatBytes, formatLike, formatPart, formatSeconds, formatShare, percent } = quantities;
  assert.equal(formatBytes(0), '0 B');
  assert.equal(formatBytes(1023), '1023 B');
  assert.equal(formatBytes(GIB - 1), '1.0 GiB');
  assert.equal(formatBytes(3.1 * GIB), '3.1 GiB');
  assert.deepEqual(formatPart(3.1 * GIB, 16 * GIB), ['3.1', '16.0 GiB']);
  assert.deepEqual(formatPart(1024, 16 * GIB), ['1.0 KiB', '16.0 GiB']);
  assert.deepEqual(formatPart(0, 16 * GIB), ['0.0', '16.0 GiB']);
  assert.equal(formatLike(GIB / 2, 16 * GIB), '0.5 GiB');
  assert.equal(formatShare(0.1 + 0.2), '0.3');
  assert.equal(formatShare(2.5), '2.5');
  assert.deepEqual([0.42, 12.4, 59.7, 200, 7500].map(formatSeconds), [
    '0.4 s', '12 s', '1 min 0 s', '3 min 20 s', '2 h 5 min'
  ]);
  assert.equal(percent(1, 0), '0%');
  assert.equal(percent(30, 16), '100%');
});

test('a time of today has no date, one of another year has its year', () => {
  const now = new Date(2026, 10, 30, 12, 0);
  const told = (...date) => quantities.formatTime(new Date(...date).toISOString(), now);
  assert.match(told(2026, 10, 30, 9, 5), /^0?9:05( AM)?$/);
  assert.match(told(2026, 10, 29, 9, 5), /^Nov 29, 0?9:05( AM)?$/);
  assert.match(told(2027, 1, 3, 9, 5), /^Feb 3, 2027, 0?9:05( AM)?$/);
  assert.equal(quantities.formatTime('soon', now), '');
});

test("a kernel's GPU time is its own, without its neighbors' slices", () => {
  const device = (busy_seconds, compute) => ({ busy_seconds, compute });
  const seconds = (...devices) => compute.gpuSeconds({ devices });
  assert.equal(seconds(), 0);
  assert.equal(seconds(device(12.4, { own_seconds: 4 })), 4);
  assert.equal(seconds(device(12.4, { own_seconds: 0 })), 0);
  assert.equal(seconds(device(12.4, { own_seconds: 4 }), device(1.5, null)), 5.5, 'the driver is believed where no agent counts');
});

test('GPU time reads in per cent that add up', () => {
  const parts = (share_used, fair_share) => compute.shareParts({ share_used, fair_share });
  assert.deepEqual(parts(0.5, 0.75), { used: 50, held: 25, free: 25 });
  assert.deepEqual(parts(0.75, 0.5), { used: 75, held: 0, free: 25 });
  assert.deepEqual(parts(null, null), { used: 0, held: 0, free: 100 });
  assert.deepEqual(parts(7, -1), { used: 100, held: 0, free: 0 });
  assert.deepEqual([0, 0.004, 0.255, 1].map(compute.formatPercent), ['0%', '<1%', '26%', '100%']);
  assert.equal(compute.formatSlowdown(1.031), '1.03×');
  assert.deepEqual([0.002, 1.25].map(compute.formatMoment), ['2.0 ms', '1.3 s']);
});

test('time is shown of devices that a kernel used or wants, and of no others', () => {
  const device = (index, told) => ({ index, ...told });
  const time = (share_used, fair_share) => ({ compute: { share_used, fair_share } });
  const devices = [
    device(0, time(0, null)), device(1, time(null, 0.5)), device(2, time(null, null)), device(3, { compute: null }), device(4, {})
  ];
  assert.deepEqual(compute.timedDevices({ devices }).map(({ index }) => index), [0, 1]);
  const isTold = (...parts) => compute.hasTime({ devices: parts.map((part, index) => device(index, part)) });
  assert.ok(isTold(time(0, null), time(0, 0.5)) && isTold(time(0.1, null)), 'who works, or wants to');
  assert.ok(!isTold(time(0, null), time(null, null)), 'a kernel at rest has no line');
});

test('kernels that are over and those that are not are told apart', () => {
  const kernels = [aKernel('k1'), over('k2'), aKernel('k3', { state: 'ended' })];
  const { live, ended } = derived.divide(kernels);
  assert.deepEqual([live.map(k => k.id), ended.map(k => k.id)], [['k1', 'k3'], ['k2']]);
});
