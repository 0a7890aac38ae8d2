// The larger size that a page proposes to a kernel that ran out of its GPU memory. Run by
// test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { GIB, aKernel, aStatus, anEnding, compiled } = require('./scripts.cjs');
const { endedForMemory, findLarger, largerRequest } = compiled('sizes/larger');
const { memoryText } = compiled('sizes/memory_words');

const device = index => ({ uuid: `GPU-${index}`, index, memory_bytes: 16 * GIB, lost: false });
const STATUS = aStatus({ devices: [device(0), device(1)] });

function aSizes(...gpus) {
  const offered = gpus.map(share => ({ gpus: share, requested_memory_bytes: null }));
  return { sizes: offered, largest_gpus: 2, step: 0.01, device_memory_bytes: 16 * GIB };
}

/** A kernel of a quarter of GPU 0, which needed this much. */
function aShortKernel(neededGib, changes = {}) {
  return aKernel('k1', { gpus: 0.25, required_bytes: neededGib * GIB, devices: [device(0)], ...changes });
}

test('the next offered size that holds what was needed is proposed, and the next step where none is near', () => {
  const request = (needed, ...offered) => largerRequest(aShortKernel(needed), STATUS, aSizes(...offered)).gpus;
  assert.equal(request(6.2, 0.25, 0.5, 1), 0.5);
  assert.equal(request(8, 0.25, 0.5, 1), 0.5);
  assert.equal(request(8.1, 0.25, 0.5, 1), 1);
  assert.equal(request(4.1, 0.25, 1), 0.26);
});

test('a kernel that runs stays on its devices, and one that is started again need not', () => {
  assert.equal(largerRequest(aShortKernel(20), STATUS, aSizes(1, 2)), null);
  const over = aShortKernel(20, { state: 'ended', termination: anEnding({ code: 'oom' }) });
  assert.equal(largerRequest(over, STATUS, aSizes(1, 2)).gpus, 2);
  assert.equal(largerRequest({ ...over, required_bytes: 40 * GIB }, STATUS, aSizes(1, 2)), null);
});

test('where nobody knows what was needed, more than there was is proposed', () => {
  const over = aKernel('k1', { state: 'ended', termination: anEnding({ code: 'oom' }) });
  assert.equal(largerRequest(over, STATUS, aSizes(0.25, 0.5)).gpus, 0.5);
});

test('a limit of its own is raised in whole GiB, up to the memory of its devices', () => {
  const limited = needed => aShortKernel(needed, { requested_memory_bytes: 4 * GIB });
  const { gpus, memory } = largerRequest(limited(6.2), STATUS, aSizes(0.5));
  assert.deepEqual([gpus, memory], [0.25, 7 * GIB]);
  assert.equal(largerRequest(limited(17), STATUS, aSizes(0.5)), null);
});

test('a kernel that runs is asked about by its id, and one that ended as a new one', async () => {
  const asked = [];
  const source = {
    sizes: async () => aSizes(0.5),
    dryRun: async (request, kernelId) => (asked.push([request.gpus, kernelId]), { suffix: 'gpu-0.5' })
  };
  const { dryRun } = await findLarger(aShortKernel(6), STATUS, source);
  await findLarger(aShortKernel(6, { state: 'ended' }), STATUS, source);
  assert.deepEqual([dryRun.suffix, asked], ['gpu-0.5', [[0.5, 'k1'], [0.5, undefined]]]);
});

test('an end is for want of memory if its reason says so, or if memory was refused before', () => {
  const ended = (code, changes) => endedForMemory(aKernel('k1', { termination: anEnding({ code }), ...changes }));
  assert.deepEqual(['memory_limit', 'oom', 'culled'].map(reason => ended(reason)), [true, true, false]);
  assert.equal(ended('crash', { required_bytes: 6 * GIB }), true);
  assert.equal(endedForMemory(aShortKernel(6)), false);
});

const trans = { __: (text, ...values) => values.reduce((said, value, index) => said.replace(`%${index + 1}`, value), text) };
/** Lab shows at most so many characters of a notification. */
const LAB_SHOWS = 140;

function said(label, message) {
  const kernel = aShortKernel(6.2, { label });
  const larger = message === undefined ? null : { request: { gpus: 0.5, memory: null }, dryRun: { message } };
  return memoryText({ kind: 'short', key: '', kernel, needed: 6.2 * GIB }, larger, trans);
}

test('what ran out is told with its amounts and what a larger size would mean, as far as Lab shows it', () => {
  const amounts = 'train.ipynb ran out of its GPU memory: it has 4.0 GiB, and needed at least 6.2 GiB.';
  assert.equal(said('train.ipynb'), amounts);
  assert.equal(said('train.ipynb', 'changes at once'), `${amounts} With 0.5 GPU: changes at once`);
});

test('advice that would be cut keeps what a larger size would mean, and lets amounts go', () => {
  const queued = 'queued, 2 ahead: needs 0.5 GPU; 0.25 is free on gpu0';
  assert.equal(said('train.ipynb', queued), `train.ipynb ran out of GPU memory. With 0.5 GPU: ${queued}`);
});

test('of a long name its middle goes before what a larger size would mean', () => {
  const queued = 'queued, 2 ahead: needs 0.5 GPU; 0.25 is free on gpu0';
  const told = said('experiment-with-a-learning-rate-that-decays-and-a-larger-batch-2026-11-23.ipynb', queued);
  assert.ok(told.length <= LAB_SHOWS, told);
  assert.match(told, /^experiment-with-.*….*-11-23\.ipynb ran out of GPU memory\. With 0\.5 GPU: queued, 2 ahead: needs 0\.5 GPU; 0\.25 is free on gpu0$/);
});
