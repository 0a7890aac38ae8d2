// A model that receives changes: events over a scripted stream, a scripted page and clock. Run by
// test_model.py.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { AClock, AStream, ASource, aKernel, aPage, aStatus, anEvent, compiled, turn, until } = require('./scripts.cjs');
const { GpuKernelsModel } = compiled('model/model');
const { StatusError } = compiled('tokens');

/** A model with a watcher, its first answer given, its stream open. */
async function aLiveModel(t, kernels = [aKernel('k1'), aKernel('k2')], who = 'watch') {
  const parts = { source: new ASource(), stream: new AStream(), page: aPage(), clock: new AClock() };
  const model = new GpuKernelsModel({ ...parts, intervalSeconds: 300 });
  t.after(() => model.dispose());
  model[who]();
  (await parts.source.nextRequest()).resolve(aStatus({ kernels }));
  await until(model, state => state.status !== null);
  parts.stream.go(true);
  parts.clock.pass(1000);
  (await parts.source.nextRequest()).resolve(aStatus({ kernels }));
  await turn();
  return { ...parts, model };
}

test('the stream is opened with the first answer, and closed when nobody is left', async t => {
  const stream = new AStream();
  const source = new ASource();
  const model = new GpuKernelsModel({ source, stream, intervalSeconds: 300 });
  t.after(() => model.dispose());
  const watch = model.watch();
  (await source.nextRequest()).reject(new StatusError('not-installed', ''));
  await until(model, state => state.problem !== null);
  assert.equal(stream.isOpen, false);
  void model.refresh();
  (await source.nextRequest()).resolve(aStatus());
  await until(model, state => state.status !== null);
  assert.equal(stream.isOpen, true);
  watch.dispose();
  assert.equal(stream.isOpen, false);
});

test('what happened before the stream was live is asked for once it is', async t => {
  const { model, source } = await aLiveModel(t);
  assert.deepEqual([source.requests, model.isLive], [2, true]);
});

test('an event changes its kernel at once, and nothing else', async t => {
  const { model, stream } = await aLiveModel(t);
  const { kernels, user } = model.state.status;
  const changed = [];
  const told = [];
  model.kernelChanged.connect((_, { id, kernel }) => changed.push([id, kernel.state]));
  model.happened.connect((_, event) => told.push(model.kernel(event.kernel_id).state));
  stream.say(anEvent('k1', { state: 'swapped_out', reason: 'k2 needs the room' }));
  assert.deepEqual([changed, told], [[['k1', 'swapped_out']], ['swapped_out']]);
  assert.equal(model.kernel('k1').reason, 'k2 needs the room');
  assert.equal(model.kernel('k2'), kernels[1]);
  assert.equal(model.state.status.user, user);
});

test('many events cause one request, within a second, and one that only waits causes none', async t => {
  const { source, stream, clock } = await aLiveModel(t);
  const before = source.requests;
  stream.say(anEvent('k1', { kind: 'queued' }));
  clock.pass(5000);
  await turn();
  assert.equal(source.requests, before);
  for (const state of ['swapped_out', 'restoring', 'on_gpu']) {
    stream.say(anEvent('k1', { state }));
  }
  clock.pass(1000);
  const request = await source.nextRequest();
  assert.equal(source.requests, before + 1);
  stream.say(anEvent('k2'));
  clock.pass(999);
  assert.equal(source.waiting.length, 0);
  request.resolve(aStatus());
});

test('an answer that was on its way does not undo what was heard meanwhile', async t => {
  const { model, source, stream } = await aLiveModel(t);
  const kernels = [aKernel('k1'), aKernel('k2')];
  void model.refresh();
  const request = await source.nextRequest();
  stream.say(anEvent('k1', { state: 'swapped_out' }));
  request.resolve(aStatus({ kernels, queue: { length: 7 } }));
  await until(model, state => state.status.queue.length === 7);
  assert.equal(model.kernel('k1').state, 'swapped_out');
});

test('an answer that says what was heard is silent', async t => {
  const { model, source, stream, clock } = await aLiveModel(t);
  stream.say(anEvent('k1', { state: 'swapped_out' }));
  const state = model.state;
  clock.pass(1000);
  (await source.nextRequest()).resolve(state.status);
  await turn();
  assert.equal(model.state, state);
});

test('who waits for a new answer gets one that was asked for after they came', async t => {
  const { model, source } = await aLiveModel(t);
  void model.refresh();
  const old = await source.nextRequest();
  let isTold = false;
  const told = model.readAnew().then(() => (isTold = true));
  old.resolve(aStatus());
  const request = await source.nextRequest();
  assert.equal(isTold, false);
  request.reject(new StatusError('unreachable', ''));
  await told;
});

test('a kernel that is equal in the next answer is the same object, wherever it stands in it', async t => {
  const { model, source } = await aLiveModel(t);
  const [one, two] = model.state.status.kernels;
  void model.refresh();
  const kernels = [aKernel('k0'), aKernel('k1'), aKernel('k2', { state: 'swapped_out' })];
  (await source.nextRequest()).resolve(aStatus({ kernels }));
  await until(model, state => state.status.kernels.length === 3);
  assert.equal(model.kernel('k1'), one);
  assert.notEqual(model.kernel('k2'), two);
});

test('a page that is long hidden hears and asks nothing, and asks at once when it is shown', async t => {
  const { source, stream, page, clock } = await aLiveModel(t);
  page.hide();
  assert.equal(stream.isOpen, true);
  clock.pass(60000);
  assert.equal(stream.isOpen, false);
  const before = source.requests;
  page.show('shown');
  assert.equal(stream.isOpen, true);
  await source.nextRequest();
  assert.equal(source.requests, before + 1);
});

test('after a sleep the connection is replaced and the status read', async t => {
  const { source, stream, page } = await aLiveModel(t);
  page.show('shown');
  assert.equal(stream.reconnected, 0);
  (await source.nextRequest()).resolve(aStatus());
  await turn();
  page.show('awake');
  assert.equal(stream.reconnected, 1);
  await source.nextRequest();
});

test('a disposed model closes its stream and hears nothing', async t => {
  const { model, stream } = await aLiveModel(t);
  const { state } = model;
  model.dispose();
  stream.say(anEvent('k1'));
  assert.deepEqual([stream.isOpen, model.state], [false, state]);
});

test('an event that grants a size ends the request, and one that waits keeps since when', async t => {
  const { model, stream } = await aLiveModel(t);
  const change = { gpus: 0.5, requested_memory_bytes: null, priority: 'low', reason: 'no room', position: 2 };
  stream.say(anEvent('k1', { kind: 'resize', state: 'on_gpu', resize: { ...change, state: 'queued' } }));
  const { since, wait_reason, ...first } = model.kernel('k1').resize;
  assert.deepEqual([first.queue_length, wait_reason.code, first.expected_start], [2, 'not_planned', null]);
  stream.say(anEvent('k1', { kind: 'resize', state: 'on_gpu', resize: { ...change, position: 1, state: 'queued' } }));
  assert.deepEqual(model.kernel('k1').resize, { ...first, ...change, position: 1, state: 'queued', since, wait_reason });
  const granted = { ...change, state: 'granted', reason: null, position: null };
  stream.say(anEvent('k1', { kind: 'resize', state: 'on_gpu', gpus: 0.5, resize: granted }));
  const { resize, gpus, priority } = model.kernel('k1');
  assert.deepEqual([resize, gpus, priority], [null, 0.5, 'low']);
});
