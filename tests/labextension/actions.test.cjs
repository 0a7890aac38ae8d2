// The actions on a kernel, resizes, and how often they may be requested, without a browser. Run by
// test_model.py.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const compiled = process.env.ALIQUOT_COMPILED;
const { move, obstacle } = require(path.join(compiled, 'model/action_rules.js'));
const { LatestAnswer } = require(path.join(compiled, 'base/latest_answer.js'));
const size = require(path.join(compiled, 'sizes/resize_request.js'));

const GIB = 2 ** 30;
const ACTIONS = ['open', 'resize', 'swapOut', 'restore', 'postponeCulling', 'restart', 'shutDown'];

function aKernel(changes = {}) {
  return {
    id: 'k-1',
    name: 'python3.gpu-0.25',
    owner: 'ada',
    label: 'train.ipynb',
    gpus: 0.25,
    requested_memory_bytes: null,
    priority: 'normal',
    state: 'on_gpu',
    execution_state: 'idle',
    memory_limit_bytes: 4 * GIB,
    residency: { mode: 'vmm', refusal: null },
    scheduled_termination: null,
    devices: [{ uuid: 'GPU-a' }],
    ...changes
  };
}

const aStatus = (changes = {}) => ({ user: { name: 'ada', role: 'user' }, node: { agent: 'ok' }, ...changes });
const possible = (kernel, status = aStatus()) => ACTIONS.filter(one => obstacle(one, kernel, status) === null);

test('each state of a kernel allows what can work in it', () => {
  const want = {
    queued: ['open', 'shutDown'],
    starting: ['open', 'shutDown'],
    on_gpu: ['open', 'resize', 'swapOut', 'restart', 'shutDown'],
    swapped_out: ['open', 'resize', 'restore', 'restart', 'shutDown'],
    restoring: ['open', 'resize', 'restart', 'shutDown'],
    checkpointed: ['open', 'resize', 'restore', 'restart', 'shutDown'],
    ended: ['open']
  };
  for (const [state, actions] of Object.entries(want)) {
    assert.deepEqual(possible(aKernel({ state })), actions, state);
  }
});

test('what cannot work has its reason', () => {
  const why = (action, changes, status = aStatus()) => obstacle(action, aKernel(changes), status);
  assert.equal(why('swapOut', { execution_state: 'busy' }), 'busy');
  assert.equal(why('swapOut', { idle_since: null }), 'busy');
  assert.equal(why('swapOut', { idle_since: '2026-01-01T00:00:00Z' }), null);
  assert.equal(why('swapOut', { residency: { mode: 'off', refusal: 'CUDA IPC' } }), 'never-swapped');
  assert.equal(why('swapOut', { state: 'restoring' }), 'wanted');
  assert.equal(why('restore', {}), 'already-on-gpu');
  assert.equal(why('resize', { gpus: 0 }), 'no-gpu');
  assert.equal(why('resize', {}, aStatus({ node: { agent: 'unavailable' } })), 'agent-away');
  assert.equal(why('open', { label: 'a console' }), 'no-notebook');
  assert.equal(why('open', { owner: 'grace' }), 'not-mine');
  assert.equal(why('shutDown', { name: '' }), 'of-another-program');
  assert.equal(why('postponeCulling', {}), 'not-announced');
  assert.equal(why('postponeCulling', { scheduled_termination: { can_postpone: false } }), 'of-age');
  assert.equal(why('postponeCulling', { scheduled_termination: { can_postpone: true } }), null);
});

test('of the two moves the one is offered that is of use', () => {
  assert.equal(move(aKernel()), 'swapOut');
  assert.equal(move(aKernel({ state: 'swapped_out' })), 'restore');
  assert.equal(move(aKernel({ state: 'checkpointed' })), 'restore');
});

test('a change of size names only what changes', () => {
  const kernel = aKernel();
  const has = size.sizeOf(kernel);
  assert.equal(size.change(kernel, has), null);
  assert.deepEqual(size.change(kernel, { ...has, gpus: 0.3 }), { gpus: 0.3 });
  assert.deepEqual(size.change(kernel, { ...has, memoryGib: 6 }), { memory: 6 * GIB });
  assert.deepEqual(size.change(kernel, { ...has, priority: 'low' }), { priority: 'low' });
  const limited = aKernel({ requested_memory_bytes: 6 * GIB });
  assert.deepEqual(size.change(limited, { ...size.sizeOf(limited), memoryGib: null }), { memory: null });
});

test('a share stays on as many devices as the kernel has', () => {
  assert.deepEqual(size.shareRange(aKernel()), { min: 0.01, max: 1 });
  const two = aKernel({ gpus: 1.5, devices: [{ uuid: 'GPU-a' }, { uuid: 'GPU-b' }] });
  assert.deepEqual(size.shareRange(two), { min: 1.01, max: 2 });
});

test('a memory limit goes up to all that its devices have', () => {
  const devices = [
    { uuid: 'GPU-a', memory_bytes: 16 * GIB },
    { uuid: 'GPU-b', memory_bytes: 80 * GIB }
  ];
  assert.deepEqual(size.memoryRange(aKernel(), devices), { min: 1, max: 16 });
  assert.deepEqual(size.memoryRange(aKernel(), []), { min: 1, max: 4 });
  assert.equal(size.firstMemoryGib(aKernel({ memory_limit_bytes: 3.2 * GIB })), 4);
});

test('what is written becomes a step within the range, or nothing', () => {
  const range = { min: 0.01, max: 1 };
  assert.equal(size.stepped('0.333', 0.01, range), 0.33);
  assert.equal(size.stepped('0,5', 0.01, range), 0.5);
  assert.equal(size.stepped('7', 0.01, range), 1);
  assert.equal(size.stepped('', 0.01, range), null);
  assert.equal(size.stepped('half', 0.01, range), null);
});

test('of questions that follow each other fast the last is answered, one at a time', async () => {
  const asked = [];
  const told = [];
  let answer;
  const asker = new LatestAnswer(
    question => {
      asked.push(question);
      return new Promise(resolve => (answer = resolve));
    },
    (question, said) => told.push([question, said]),
    0
  );
  const turn = () => new Promise(resolve => setTimeout(resolve, 5));
  asker.want('a');
  asker.want('b');
  await turn();
  assert.deepEqual(asked, ['b']);
  asker.want('c');
  await turn();
  assert.deepEqual(asked, ['b'], 'the second waits for the first');
  answer('about b');
  await turn();
  assert.deepEqual(asked, ['b', 'c']);
  answer('about c');
  await turn();
  assert.deepEqual(told, [['c', 'about c']], 'an answer that nobody waits for is not told');
  asker.want('d');
  asker.forget();
  await turn();
  assert.deepEqual(asked, ['b', 'c']);
});
