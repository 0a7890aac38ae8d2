// The administrator's view without a page: rows, sums of teams, and when the reports are requested.
// Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { compiled } = require('./scripts.cjs');
const { rowsOf, nextOrder } = compiled('admin/kernel_rows');
const { usesOf } = compiled('admin/users');
const { AdminModel } = compiled('admin/admin_model');
const { changesOf } = compiled('admin/size_change');
const { nodeActs, nodeRows } = compiled('admin/node_rows');

const aKernel = (id, more = {}) => ({
  id, name: 'python3', owner: 'alice', team: null, label: `${id}.ipynb`, gpus: 0.25, state: 'on_gpu',
  gpus_used: 0.1, used_bytes: 1, idle_seconds: null, host: null, ...more
});
const ids = rows => rows.map(row => row.id);

test('a list is in the order of its column, unknown values last when the largest come first', () => {
  const kernels = [aKernel('a', { idle_seconds: 5 }), aKernel('b'), aKernel('c', { idle_seconds: 50 })];
  assert.deepEqual(ids(rowsOf(kernels, '', { column: 'idle', isDescending: true })), ['c', 'a', 'b']);
  assert.deepEqual(ids(rowsOf(kernels, '', { column: 'idle', isDescending: false })), ['b', 'a', 'c']);
  assert.deepEqual(ids(kernels), ['a', 'b', 'c'], 'the report itself stays as it is');
});

test('equal kernels keep one order, whatever the order of the report', () => {
  const order = { column: 'owner', isDescending: true };
  const kernels = ['c', 'a', 'b'].map(id => aKernel(id));
  assert.deepEqual(ids(rowsOf(kernels, '', order)), ['a', 'b', 'c']);
});

test('a text finds notebooks, owners, teams, states and ids in any case', () => {
  const kernels = [aKernel('k1', { team: 'Vision' }), aKernel('k2', { owner: 'bob' }), aKernel('k3', { state: 'queued' })];
  const found = text => ids(rowsOf(kernels, text, { column: 'label', isDescending: false }));
  assert.deepEqual(found('vision'), ['k1']);
  assert.deepEqual(found(' BOB '), ['k2']);
  assert.deepEqual(found('queue'), ['k3']);
  assert.deepEqual(found('K2.ipynb'), ['k2']);
  assert.deepEqual(found('nothing'), []);
});

test('a column of numbers begins with the largest, one of texts with the first letter', () => {
  const idle = { column: 'idle', isDescending: true };
  assert.deepEqual(nextOrder(idle, 'owner'), { column: 'owner', isDescending: false });
  assert.deepEqual(nextOrder(idle, 'ram'), { column: 'ram', isDescending: true });
  assert.deepEqual(nextOrder(idle, 'idle'), { column: 'idle', isDescending: false });
});

test('the idle share of a team is that of what its kernels hold', () => {
  const uses = usesOf([
    aKernel('a', { team: 'vision', gpus: 0.75 }),
    aKernel('b', { team: 'vision', gpus: 0.25, idle_seconds: 9, gpus_used: null }),
    aKernel('c', { team: 'vision', gpus: 4, state: 'queued', gpus_used: null }),
    aKernel('d', { team: 'rest', gpus: 1, state: 'queued', gpus_used: null }),
    aKernel('e')
  ]);
  assert.deepEqual(uses.get('vision'), { gpusUsed: 0.1, idleShare: 0.25 });
  assert.deepEqual(uses.get('rest'), { gpusUsed: null, idleShare: null });
  assert.equal(uses.size, 2);
});

test('a resize has the fields that differ from the last report, and no others', () => {
  const kernel = aKernel('a', { gpus: 0.25, priority: 'normal' });
  assert.deepEqual(changesOf(kernel, {}), {});
  assert.deepEqual(changesOf(kernel, { gpus: 0.5 }), { gpus: 0.5 });
  assert.deepEqual(changesOf(kernel, { gpus: 0.25, priority: 'low' }), { priority: 'low' });
  assert.deepEqual(changesOf(kernel, { gpus: 0.25, memory: '8GiB', priority: 'normal' }), { memory: '8GiB' });
});

const trans = { __: (text, ...values) => text.replace(/%(\d)/g, (_, place) => values[place - 1]) };
const aCordon = changes => ({ since: '2026-01-01T00:10:00.000Z', reason: null, draining: false, ...changes });
const aReport = (cordon, others = []) => ({
  node: { name: 'here', agent: 'ok', message: null, driver: 'softgpu', cordon }, nodes: others, devices: []
});

test('the health of a node has its cordon with the reason, beside what its agent tells', () => {
  const now = new Date('2026-01-02T00:00:00Z');
  const healths = report => nodeRows(report, now, trans).map(row => row.health);
  assert.deepEqual(healths(aReport(null)), ['healthy']);
  const [cordoned] = healths(aReport(aCordon({ reason: 'new driver' })));
  assert.match(cordoned, /^healthy; cordoned since .*\d.*: new driver$/);
  const other = { name: 'gpu-2', state: 'unknown', message: 'Its agent does not dial.', driver: null, devices: [] };
  const [, drained] = healths(aReport(null, [{ ...other, cordon: aCordon({ draining: true }) }]));
  assert.match(drained, /^Its agent does not dial\.; drained since .*\d[^:]*:?\d*/);
});

test('a drained node is not cordoned again, and one without a name has no actions', () => {
  const here = (cordon, count = 1) => nodeActs({ name: 'here', cordon, devices: Array(count).fill({}) });
  assert.deepEqual(here(null), ['cordon', 'drain']);
  assert.deepEqual(here(null, 2), ['moves', 'cordon', 'drain']);
  assert.deepEqual(here(aCordon(), 2), ['drain', 'uncordon']);
  assert.deepEqual(here(aCordon({ draining: true })), ['uncordon']);
  assert.deepEqual(nodeActs({ name: '', cordon: null }), []);
});

function aScene() {
  const waits = [];
  const clock = {
    now: () => 0,
    chance: () => 0,
    after: (milliseconds, call) => {
      const wait = { milliseconds, call, dispose: () => waits.splice(waits.indexOf(wait), 1) };
      waits.push(wait);
      return wait;
    }
  };
  const scene = { waits, asked: 0, fails: null };
  const answer = name => async () => {
    scene.asked += 1;
    if (scene.fails) {
      throw new Error(scene.fails);
    }
    return { name, round: scene.asked };
  };
  const source = { holders: answer('holders'), queue: answer('queue'), quota: answer('quota') };
  scene.model = new AdminModel(source, clock);
  return scene;
}
const settled = () => new Promise(resolve => setImmediate(resolve));

test('reports are requested while the view is visible, and not after', async () => {
  const { model, waits, ...scene } = aScene();
  assert.equal(waits.length, 0);
  model.isWatched = true;
  await settled();
  assert.equal(model.state.holders.name, 'holders');
  assert.deepEqual(waits.map(wait => wait.milliseconds), [3000]);
  model.isWatched = false;
  assert.equal(waits.length, 0);
  model.isWatched = true;
  await settled();
  model.dispose();
  assert.equal(waits.length, 0);
});

test('failures are told, slow the requests down, and end with the next answer', async () => {
  const scene = aScene();
  scene.fails = 'out of breath';
  scene.model.isWatched = true;
  const seconds = [];
  for (let round = 0; round < 6; round += 1) {
    await settled();
    assert.equal(scene.model.state.problem, 'out of breath');
    const [wait] = scene.waits.splice(0, 1);
    seconds.push(wait.milliseconds / 1000);
    wait.call();
  }
  assert.deepEqual(seconds, [6, 12, 24, 48, 60, 60]);
  await settled();
  scene.fails = null;
  scene.waits.splice(0, 1)[0].call();
  await settled();
  assert.equal(scene.model.state.problem, null);
  assert.equal(scene.waits[0].milliseconds, 3000);
});
