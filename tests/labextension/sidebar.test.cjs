// The parts of devices, the owners of kernels, and the charts of the last minutes, without a
// browser. Run by test_model.py.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { GIB, compiled } = require('./scripts.cjs');
const { deviceParts, kernelParts, myParts } = compiled('model/device_parts');
const { DeviceHistory } = compiled('history/device_history');
const { byOwner, foldersToTell, idsToTell, myPlaces } = compiled('model/kernel_groups');
const { stateWord } = compiled('model/state_word');
const { BUCKETS, BUCKET_SECONDS, draw, extent, Recent } = compiled('history/recent');

function aDevice(changes = {}) {
  const sums = { mine_reserved_bytes: 0, swapped_bytes: 0, mine_swapped_bytes: 0, burstable_bytes: 0 };
  return { uuid: 'GPU-a', memory_bytes: 16, used_bytes: 0, mine_bytes: 0, reserved_bytes: 0, ...sums, ...changes };
}

function aKernel(changes = {}) {
  const part = { uuid: 'GPU-a', used_bytes: 4, guaranteed_memory_bytes: 4, context_bytes: 0 };
  const memory = { used_bytes: 4, memory_limit_bytes: 8, guaranteed_memory_bytes: 4, residency: { swapped_bytes: 0 } };
  return { id: 'k', owner: 'ada', gpus: 0.25, state: 'on_gpu', ...memory, devices: [part], ...changes };
}

test('the state of a kernel in a list has its place in the queue, and nothing that only figures tell', () => {
  const trans = { __: (text, ...values) => text.replace(/%(\d)/g, (_, place) => values[place - 1]) };
  const queued = { state: 'queued', queue_position: 2, queue_length: 5 };
  const states = [queued, { ...queued, queue_position: null }, aKernel({ execution_state: 'busy' }), { state: 'swapped_out' }];
  const words = states.map(kernel => stateWord(kernel, trans));
  assert.deepEqual(words, ['queued: 1 ahead', 'queued', 'on GPU', 'swapped out']);
});

test('the parts of a device add up to its memory, whatever is said', () => {
  const cases = [
    aDevice(),
    aDevice({ used_bytes: 3, mine_bytes: 1, reserved_bytes: 12 }),
    aDevice({ used_bytes: 14, reserved_bytes: 12, burstable_bytes: 9 }),
    aDevice({ used_bytes: 20, mine_bytes: 30, reserved_bytes: 40, mine_reserved_bytes: 50 }),
    aDevice({ used_bytes: 8, mine_bytes: 6, mine_swapped_bytes: 9, swapped_bytes: 3 }),
    aDevice({ memory_bytes: 0, used_bytes: 2 }),
    { uuid: 'old', memory_bytes: 16, used_bytes: 3, mine_bytes: 1, reserved_bytes: 12 }
  ];
  for (const device of cases) {
    for (const my of [undefined, { context: 1, burstable: 3, held: 5 }, { context: 99, burstable: 99, held: 99 }]) {
      const { mineSwapped, othersSwapped, ...on } = deviceParts(device, my);
      const parts = Object.values(on);
      assert.ok([...parts, mineSwapped, othersSwapped].every(part => part >= 0), JSON.stringify(on));
      assert.equal(parts.reduce((sum, part) => sum + part, 0), device.memory_bytes, JSON.stringify(device));
    }
  }
});

test('what is mine and what is others is told apart, within guarantees, beyond, and unused', () => {
  const kernels = [
    aKernel({ used_bytes: 6, devices: [{ uuid: 'GPU-a', used_bytes: 6, guaranteed_memory_bytes: 4, context_bytes: 1 }] }),
    aKernel({ used_bytes: 1, devices: [{ uuid: 'GPU-a', used_bytes: 1, guaranteed_memory_bytes: 2, context_bytes: 0 }] }),
    aKernel({ owner: 'bob' })
  ];
  const my = myParts(kernels, 'ada').get('GPU-a');
  assert.deepEqual(my, { context: 1, burstable: 2, held: 1 });
  const device = aDevice({ used_bytes: 12, mine_bytes: 7, mine_reserved_bytes: 6, reserved_bytes: 9, burstable_bytes: 3 });
  const parts = deviceParts(device, my);
  const want = { mine: 6, mineBurstable: 2, mineHeld: 1, others: 3, othersBurstable: 1, othersHeld: 0, free: 3 };
  assert.deepEqual(parts, { ...want, mineSwapped: 0, othersSwapped: 0 });
});

test('a swapped kernel uses nothing of its device, and its guarantee is held', () => {
  const swapped = aKernel({ residency: { swapped_bytes: 4 } });
  assert.deepEqual(myParts([swapped], 'ada').get('GPU-a'), { context: 0, burstable: 0, held: 4 });
  assert.deepEqual(kernelParts(swapped), { resident: 0, burstable: 0, swapped: 4 });
  assert.deepEqual(kernelParts(aKernel({ used_bytes: 6 })), { resident: 4, burstable: 2, swapped: 0 });
  const shrunk = { used_bytes: 6, memory_limit_bytes: 3, guaranteed_memory_bytes: 3 };
  assert.deepEqual(kernelParts(aKernel(shrunk)), { resident: 6, burstable: 0, swapped: 0 });
  assert.deepEqual(kernelParts(aKernel({ residency: null })), { resident: 4, burstable: 0, swapped: 0 });
});

test('kernels are grouped by owner, mine first, and what waits holds nothing', () => {
  const kernels = [
    aKernel({ owner: 'zoe' }),
    aKernel({ owner: 'bob', residency: { swapped_bytes: 3 } }),
    aKernel({ owner: 'bob', state: 'queued', used_bytes: 0 }),
    aKernel()
  ];
  const groups = byOwner(kernels, 'ada');
  assert.deepEqual(groups.map(group => group.owner), ['ada', 'bob', 'zoe']);
  const { kernels: theirs, ...bob } = groups[1];
  assert.equal(theirs.length, 2);
  assert.deepEqual(bob, { owner: 'bob', isMine: false, gpus: 0.25, usedBytes: 4, swappedBytes: 3, waiting: 1 });
});

test('my places in the queue are of those that start and of those that grow', () => {
  const kernels = [
    aKernel({ queue_position: 4, resize: null }),
    aKernel({ queue_position: null, resize: { position: 2 } }),
    aKernel({ owner: 'bob', queue_position: 1 }),
    aKernel({ queue_position: null, resize: null })
  ];
  assert.deepEqual(myPlaces(kernels, 'ada'), [2, 4]);
});

test('a line holds what was so until something else is told', () => {
  const recent = new Recent();
  recent.add(1000, 10);
  recent.add(1000 + 3 * BUCKET_SECONDS, 30);
  assert.deepEqual(recent.values.slice(-4), [10, 10, 10, 30]);
  recent.add(1001 + 3 * BUCKET_SECONDS, 50);
  assert.deepEqual(recent.values.slice(-1), [40], 'the mean of what was seen');
  assert.deepEqual(extent(recent.values), { least: 10, most: 40 });
});

test('while nobody looks a line has a gap, and it keeps no more than its minutes', () => {
  const recent = new Recent();
  recent.add(1000, 10);
  recent.pause();
  recent.add(1000 + 2 * BUCKET_SECONDS, 30);
  assert.deepEqual(recent.values.slice(-3), [10, null, 30]);
  recent.add(1000 + 2 * BUCKETS * BUCKET_SECONDS, 70);
  assert.equal(recent.values.length, BUCKETS);
  assert.deepEqual(recent.values.slice(0, 2), [30, 30]);
});

test('the gateway fills what this page has not seen, and no more', () => {
  const recent = new Recent();
  recent.add(1000, 10);
  recent.seed([
    { at: 980, seconds: 10, value: 5 },
    { at: 990, seconds: 10, value: null },
    { at: 1000, seconds: 10, value: 99 }
  ]);
  assert.deepEqual(recent.values.slice(-5), [5, 5, null, null, 10]);
});

test('a drawing begins with what was seen first, and leaves gaps open', () => {
  const { line, area, width } = draw([...new Array(20).fill(null), 0, 50, null, 100], 100, 10);
  assert.equal(width, 11);
  assert.equal(line, 'M8 10L9 5M11 0');
  assert.equal(area, 'M8 10L8 10L9 5L9 10ZM11 10L11 0L11 10Z');
  assert.equal(draw([null, null], 100, 10).line, '');
  assert.equal(draw([1, 1], 0, 10).line, '');
});

test('devices have lines while they are there, and a failure is a gap', () => {
  const device = { uuid: 'GPU-a', utilization_percent: 40, used_bytes: GIB, lost: false };
  const state = (devices, problem = null) => ({ status: { node: { agent: 'ok' }, devices }, problem });
  const history = new DeviceHistory();
  history.note(state([device]), 1000);
  const before = history.beat('GPU-a');
  history.note(state([device], new Error('away')), 1005);
  history.note(state([{ ...device, utilization_percent: 60 }]), 1010);
  assert.deepEqual(history.of('GPU-a').utilization.values.slice(-3), [40, null, 60]);
  assert.notEqual(history.beat('GPU-a'), before);
  history.note(state([]), 1015);
  assert.equal(extent(history.of('GPU-a').memory.values), null, 'a device that is gone is forgotten');
});

test('notebooks of one name are told apart by their folders, and those of one folder by their ids', () => {
  const a = (id, label, owner = 'ada') => ({ id, owner, label, name: 'python3.gpu-0.25' });
  const kernels = [
    a('11111111-one', 'models/train.ipynb'),
    a('22222222-two', 'models/train.ipynb'),
    a('33333333-three', 'old/train.ipynb'),
    a('44444444-four', 'notes.ipynb'),
    a('55555555-five', 'notes.ipynb', 'bob'),
    a('66666666-six', ''),
    a('77777777-seven', '')
  ];
  const folders = Object.fromEntries(foldersToTell(kernels));
  assert.deepEqual(folders, { '11111111-one': 'models', '22222222-two': 'models', '33333333-three': 'old' });
  const ids = ['11111111-one', '22222222-two', '66666666-six', '77777777-seven'];
  assert.deepEqual(Object.fromEntries(idsToTell(kernels)), Object.fromEntries(ids.map(id => [id, id.slice(0, 8)])));
});
