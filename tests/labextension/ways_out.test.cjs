// The ways out of a wait, without a browser. Run by test_model.py.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const compiled = process.env.ALIQUOT_COMPILED;
const ways = require(path.join(compiled, 'sizes/ways_out.js'));

const GIB = 2 ** 30;

function aDevice(index, reservedGpus, changes = {}) {
  const bytes = { memory_bytes: 16 * GIB, reserved_bytes: reservedGpus * 16 * GIB };
  return { uuid: `GPU-${index}`, index, ...bytes, reserved_gpus: reservedGpus, lost: false, ...changes };
}

function aKernel(id, gpus, devices, changes = {}) {
  const part = uuid => ({ uuid, gpus: gpus / devices.length, guaranteed_memory_bytes: 16 * GIB * (gpus / devices.length), used_bytes: GIB });
  return {
    ...{ id, name: `python3.gpu-${gpus}`, owner: 'ada', access: 'own', label: `${id}.ipynb`, gpus, state: 'on_gpu' },
    ...{ priority: 'normal', requested_memory_bytes: null, execution_state: 'idle' },
    ...{ idle_since: '2026-01-01T00:10:00Z', wait_reason: null, residency: { mode: 'vmm', queued: null } },
    devices: devices.map(index => part(`GPU-${index}`)),
    ...changes
  };
}

function aQueued(gpus, { code = 'gpu', free = 0, device = 0, freeBytes = 0, ...changes } = {}) {
  const requested = { gpus, memory_bytes: gpus * 16 * GIB };
  const reason = { code, requested, free: { gpus: free, memory_bytes: freeBytes, device }, host_memory: null };
  return aKernel('waits', gpus, [], { state: 'queued', idle_since: null, wait_reason: reason, ...changes });
}

function aStatus(devices, kernels, changes = {}) {
  return { user: { name: 'ada' }, node: { agent: 'ok', overcommit: 1 }, devices, kernels, ...changes };
}

function helped(kernel, devices, others, changes = {}) {
  return ways.helpers(kernel, aStatus(devices, [kernel, ...others], changes)).map(one => [one.kernel.id, one.way]);
}

test('an idle kernel whose end lets the waiting one start is offered to be shut down, a busy one and that of another are not', () => {
  const idle = aKernel('idle', 0.5, [0]);
  const busy = aKernel('busy', 0.25, [0], { idle_since: null, execution_state: 'busy' });
  const other = aKernel('other', 0.25, [0], { owner: 'bob', access: 'read' });
  assert.deepEqual(helped(aQueued(0.5), [aDevice(0, 1)], [idle, busy, other]), [['idle', 'shutDown']]);
});

test('an idle kernel that frees too little, or another device, is not offered', () => {
  const small = aKernel('small', 0.25, [0]);
  assert.deepEqual(helped(aQueued(0.5), [aDevice(0, 1)], [small]), []);
  assert.deepEqual(helped(aQueued(0.5, { free: 0.25, freeBytes: 4 * GIB }), [aDevice(0, 0.75)], [small]), [['small', 'shutDown']]);
  const apart = aKernel('apart', 0.25, [1]);
  assert.deepEqual(helped(aQueued(0.75, { free: 0.25, freeBytes: 4 * GIB }), [aDevice(0, 0.75), aDevice(1, 1)], [apart]), []);
});

test('two that are enough together are offered both, and first the one that is enough alone', () => {
  const halves = [aKernel('one', 0.5, [0]), aKernel('two', 0.5, [0])];
  assert.deepEqual(helped(aQueued(1), [aDevice(0, 1)], halves), [['one', 'shutDown'], ['two', 'shutDown']]);
  const since = { idle_since: '2026-01-01T00:00:00Z' };
  const unequal = [aKernel('quarter', 0.25, [0], since), aKernel('half', 0.5, [0])];
  assert.deepEqual(helped(aQueued(0.5, { free: 0.25, freeBytes: 4 * GIB }), [aDevice(0, 0.75)], unequal), [
    ['quarter', 'shutDown'],
    ['half', 'shutDown']
  ]);
  assert.deepEqual(helped(aQueued(0.5), [aDevice(0, 1)], unequal), [['half', 'shutDown'], ['quarter', 'shutDown']]);
});

test('a request of several GPUs is helped by kernels that leave as many whole ones', () => {
  const queued = aQueued(2, { device: null });
  const one = aKernel('one', 1, [0]);
  assert.deepEqual(helped(queued, [aDevice(0, 1), aDevice(1, 1)], [one]), []);
  assert.deepEqual(helped(queued, [aDevice(0, 1), aDevice(1, 0)], [one]), [['one', 'shutDown']]);
});

test('room that is reserved twice over counts', () => {
  const node = { agent: 'ok', overcommit: 2 };
  assert.deepEqual(helped(aQueued(1), [aDevice(0, 2)], [aKernel('idle', 1, [0])], { node }), [['idle', 'shutDown']]);
  const second = [aDevice(0, 2), aDevice(1, 1.5)];
  assert.deepEqual(helped(aQueued(1), second, [aKernel('idle', 0.5, [1])], { node }), [['idle', 'shutDown']]);
});

test('nothing that waits for an agent, or behind others, is helped by room', () => {
  for (const code of ['agent_unavailable', 'ahead', 'replaced_kernel', 'not_planned']) {
    assert.deepEqual(helped(aQueued(0.5, { code }), [aDevice(0, 1)], [aKernel('idle', 1, [0])]), [], code);
  }
  assert.deepEqual(helped(aQueued(0.5, { code: 'host_memory' }), [aDevice(0, 1)], [aKernel('idle', 0.25, [0])]), [
    ['idle', 'shutDown']
  ]);
});

test('memory that is to come back is helped by idle kernels on its device that can be swapped out, else by their end', () => {
  const queued = { ahead: 0, expected_seconds: 3, reason: 'others have their turn' };
  const waking = aKernel('waits', 1, [0], { state: 'restoring', residency: { mode: 'vmm', state: 'swapped_out', queued } });
  const others = [
    aKernel('swappable', 1, [0]),
    aKernel('pinned', 0.5, [0], { residency: { mode: 'off', queued: null } }),
    aKernel('out', 1, [0], { state: 'swapped_out' }),
    aKernel('elsewhere', 1, [1])
  ];
  assert.deepEqual(helped(waking, [aDevice(0, 2), aDevice(1, 1)], others), [['swappable', 'swapOut'], ['pinned', 'shutDown']]);
  const asleep = aKernel('asleep', 1, [0], { state: 'swapped_out' });
  assert.deepEqual(helped(asleep, [aDevice(0, 2)], others), []);
});

const SIZES = {
  ...{ may_use_normal_priority: true, largest_gpus: 4, step: 0.01, default_size: null, device_memory_bytes: 16 * GIB },
  pattern: '(?<kernelspec>.+)\\.gpu-(?<gpus>[0-9.]+)(-(?<memory_gib>[0-9]+)g)?(?<low>-low)?',
  sizes: [0.25, 0.5, 1].map(gpus => ({
    ...{ name: `python3.gpu-${gpus}`, kernelspec: 'python3', gpus, requested_memory_bytes: null, priority: 'normal' }
  }))
};

/** Returns a server on which these shares start, with all its requests. */
function aServer(starts) {
  const asked = [];
  const ask = async request => {
    asked.push(request.gpus);
    return { outcome: starts.includes(request.gpus) ? 'starts' : 'queued', suffix: `gpu-${request.gpus}` };
  };
  return { asked, ask };
}

test('the largest of the smaller sizes that starts now is found, and no larger one than is free is asked for', async () => {
  const open = aServer([0.25]);
  const found = await ways.smallerNow(aQueued(1, { free: 0.3 }), SIZES, open.ask);
  assert.equal(found.suffix, 'gpu-0.25');
  assert.deepEqual(open.asked, [0.25]);
  const unknown = aServer([0.5, 0.25]);
  const kernel = aQueued(2, { free: 1, device: null });
  assert.equal((await ways.smallerNow(kernel, SIZES, unknown.ask)).suffix, 'gpu-0.5');
  assert.deepEqual(unknown.asked, [1, 0.5]);
});

test('no size is proposed where none starts, and the size that waits is not asked for again', async () => {
  const full = aServer([]);
  assert.equal(await ways.smallerNow(aQueued(1, { free: 0 }), SIZES, full.ask), null);
  assert.deepEqual(full.asked, []);
  const least = aServer([0.25]);
  assert.equal(await ways.smallerNow(aQueued(0.25, { code: 'ahead', free: 1 }), SIZES, least.ask), null);
  assert.deepEqual(least.asked, []);
});

test('a size without GPU is the base, or a name of its own where the base has a default', () => {
  assert.equal(ways.plainName('python3.gpu-0.5', SIZES), 'python3');
  assert.equal(ways.plainName('python3.gpu-0.5', { ...SIZES, default_size: '0.25' }), 'python3.gpu-none');
});
