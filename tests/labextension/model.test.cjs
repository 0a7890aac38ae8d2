// The model and its poll, without a browser. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { ASource, aKernel, aMemory, aModel, aStatus, compiled, over, turn, until } = require('./scripts.cjs');
const { GpuKernelsModel } = compiled('model/model');
const { StatusError } = compiled('tokens');

test('nothing is asked while nobody watches', async t => {
  const { source, model } = aModel(t);
  await model.refresh();
  await turn();
  await turn();
  assert.equal(source.requests, 0);
});

test('a watched model shows what the server answered', async t => {
  const { source, model } = aModel(t);
  model.watch();
  (await source.nextRequest()).resolve(aStatus());
  const state = await until(model, s => s.status !== null);
  assert.equal(state.status.user.name, 'ada');
  assert.equal(state.problem, null);
});

test('one request is under way at a time, refreshed or not', async t => {
  const { source, model } = aModel(t);
  model.watch();
  const first = await source.nextRequest();
  for (let i = 0; i < 5; i++) {
    await model.refresh();
    await turn();
  }
  assert.equal(source.requests, 1);
  first.resolve(aStatus());
  (await source.nextRequest()).resolve(aStatus());
  assert.equal(source.mostAtOnce, 1);
});

test('an equal answer is silent and another one is not', async t => {
  const { source, model } = aModel(t);
  const seen = [];
  model.changed.connect((_, state) => seen.push(state.status.queue.length));
  model.watch();
  for (const length of [0, 0, 0, 3]) {
    (await source.nextRequest()).resolve(aStatus({ queue: { length } }));
  }
  await until(model, s => s.status?.queue.length === 3);
  assert.deepEqual(seen, [0, 3]);
});

test('a failure keeps the last figures and recovery clears it', async t => {
  const { source, model } = aModel(t);
  model.watch();
  (await source.nextRequest()).resolve(aStatus());
  (await source.nextRequest()).reject(new StatusError('unreachable', 'refused'));
  const failed = await until(model, s => s.problem !== null);
  assert.equal(failed.problem.kind, 'unreachable');
  assert.equal(failed.status.user.name, 'ada');
  void model.refresh();
  (await source.nextRequest()).resolve(aStatus());
  const recovered = await until(model, s => s.problem === null);
  assert.equal(recovered.status.user.name, 'ada');
});

test('a server without the extension has no figures to keep', async t => {
  const { source, model } = aModel(t);
  model.watch();
  (await source.nextRequest()).resolve(aStatus());
  (await source.nextRequest()).reject(new StatusError('not-installed', ''));
  const state = await until(model, s => s.problem !== null);
  assert.equal(state.status, null);
});

test('a defect of the source becomes a problem, never an unhandled rejection', async t => {
  const { source, model } = aModel(t);
  model.watch();
  (await source.nextRequest()).reject(new TypeError('no such property'));
  const state = await until(model, s => s.problem !== null);
  assert.equal(state.problem.kind, 'server');
  assert.match(state.problem.message, /no such property/);
});

test('the last watcher to leave stops the requests', async t => {
  const { source, model } = aModel(t);
  const one = model.watch();
  const other = model.watch();
  (await source.nextRequest()).resolve(aStatus());
  one.dispose();
  (await source.nextRequest()).resolve(aStatus());
  other.dispose();
  other.dispose();
  await turn();
  const before = source.requests;
  await model.refresh();
  await turn();
  assert.equal(source.requests, before);
  model.watch();
  await source.nextRequest();
});

test('a disposed model is silent, whatever still arrives', async t => {
  const { source, model } = aModel(t);
  let said = 0;
  model.changed.connect(() => (said += 1));
  model.watch();
  const request = await source.nextRequest();
  model.dispose();
  request.resolve(aStatus());
  await turn();
  await model.refresh();
  assert.equal(said, 0);
});

test('an ended kernel that is put away stays away, unless it ends anew', () => {
  const dismissed = aMemory();
  const kernel = over('k1');
  const model = new GpuKernelsModel({ source: new ASource(), dismissed });
  let changes = 0;
  model.changed.connect(() => (changes += 1));
  assert.equal(model.isDismissed(kernel), false);
  model.dismiss(kernel);
  assert.deepEqual([model.isDismissed(kernel), changes], [true, 1]);
  model.dispose();
  const reloaded = new GpuKernelsModel({ source: new ASource(), dismissed });
  assert.equal(reloaded.isDismissed(kernel), true);
  assert.equal(reloaded.isDismissed(over('k1', { at: '2026-02-02T00:00:00Z' })), false);
  reloaded.dispose();
});

test('who waits for news is asked for rarely, and who looks as often as they want', async t => {
  const { source, model } = aModel(t);
  const waiting = model.waitForNews();
  (await source.nextRequest()).resolve(aStatus());
  await turn();
  await new Promise(resolve => setTimeout(resolve, 60));
  assert.equal(source.requests, 1);
  model.watch();
  (await source.nextRequest()).resolve(aStatus());
  (await source.nextRequest()).resolve(aStatus());
  waiting.dispose();
});

test('no two waits are alike, so that pages do not ask in step', async t => {
  const { StatusPoll } = compiled('client/status_poll');
  const chances = [0, 0.5, 1];
  const clock = { now: () => 0, chance: () => chances.shift() };
  chances.unshift(0.5, 0.5); // the chances of the model's creation and of its interval
  const poll = new StatusPoll({ ask: () => Promise.resolve(), isNeeded: () => true, clock });
  t.after(() => poll.dispose());
  poll.intervalSeconds = 20;
  const waits = [];
  for (let i = 0; i < 3; i++) {
    await poll.askAnew();
    waits.push(poll._poll.frequency.interval);
  }
  assert.deepEqual(waits, [18000, 20000, 22000]);
});
