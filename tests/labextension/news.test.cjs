// Notifications of users, each once. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { GIB, aKernel, aMemory, aStatus, anEnding, compiled, over } = require('./scripts.cjs');
const { NewsReader, Remembered, newsOf } = compiled('model/news');

const NOW = new Date('2026-01-01T00:00:00Z');
const after = seconds => new Date(NOW.getTime() + seconds * 1000);

test('what ended before a browser saw the server is no news, and what ends then is told once', () => {
  const memory = aMemory();
  const old = over('k1');
  const reader = new NewsReader(memory);
  assert.deepEqual(reader.read(aStatus({ kernels: [old] }), NOW), []);
  const status = aStatus({ kernels: [old, over('k2')] });
  assert.deepEqual(reader.read(status, NOW).map(news => [news.kind, news.kernel.id]), [['ended', 'k2']]);
  assert.deepEqual(reader.read(status, NOW), []);
  const later = new NewsReader(memory);
  const reloaded = aStatus({ kernels: [...status.kernels, over('k3'), aKernel('k4', { last_crash: anEnding() })] });
  assert.deepEqual(later.read(reloaded, NOW).map(news => news.key.split(' ').slice(0, 2)), [
    ['ended', 'k3'],
    ['restarted', 'k4']
  ]);
});

test('only what happens to my own kernels, and what I did not do, is news', () => {
  const reader = new NewsReader(aMemory('[]'));
  const kernels = [over('k1', { by: 'ada' }), { ...over('k2'), owner: 'bob' }, over('k3', { code: 'stopped' })];
  assert.deepEqual(reader.read(aStatus({ kernels }), NOW).map(news => news.kernel.id), ['k3']);
  const admin = new NewsReader(aMemory('[]'));
  assert.deepEqual(admin.read(aStatus({ user: { name: 'ada', role: 'admin' }, kernels }), NOW), []);
});

test('an announced end is told at once, and again when it is announced anew', () => {
  const reader = new NewsReader(aMemory('no JSON'));
  const soon = at => aStatus({ kernels: [aKernel('k1', { scheduled_termination: { at, message: 'idle', can_postpone: true } })] });
  assert.equal(reader.read(soon('t1'), NOW).length, 1);
  assert.equal(reader.read(soon('t1'), NOW).length, 0);
  assert.equal(reader.read(soon('t2'), NOW).length, 1);
});

test('each time that a kernel runs out of memory is told once, and not what failed in the process before', () => {
  const reader = new NewsReader(aMemory('[]'));
  const [first, second] = ['2026-01-01T00:00:01Z', '2026-01-01T00:00:09Z'];
  const short = (at, changes) => aStatus({ kernels: [aKernel('k1', { required_bytes: 6 * GIB, last_failed_allocation_at: at, ...changes })] });
  const told = status => reader.read(status, NOW).map(news => news.kind);
  assert.deepEqual(told(short(first)), ['short']);
  assert.deepEqual(told(short(first)), []);
  assert.deepEqual(told(short(second)), ['short']);
  assert.deepEqual(told(short(second, { last_crash: anEnding() })), ['restarted']);
  assert.deepEqual(told(short(null, { required_bytes: null })), []);
});

test('a kernel that was refused memory which it needed is told once at each limit, and not once it has enough', () => {
  const memory = aMemory('[]');
  const needs = changes => aStatus({ kernels: [aKernel('k1', { required_bytes: 6 * GIB, ...changes })] });
  const kinds = status => new NewsReader(memory).read(status, NOW).map(news => [news.kind, news.needed]);
  assert.deepEqual(kinds(needs()), [['short', 6 * GIB]]);
  assert.deepEqual(kinds(needs({ required_bytes: 7 * GIB })), []);
  assert.deepEqual(kinds(needs({ memory_limit_bytes: 5 * GIB })), [['short', 6 * GIB]]);
  assert.deepEqual(kinds(needs({ memory_limit_bytes: 8 * GIB })), []);
  assert.deepEqual(kinds(needs({ required_bytes: null })), []);
  assert.deepEqual(newsOf(needs({ required_bytes: undefined })), []);
});

test('a kernel that its user makes smaller is not told to have run out of memory again', () => {
  const reader = new NewsReader(aMemory('[]'));
  const at = '2026-01-01T00:00:01Z';
  const needs = changes => aStatus({ kernels: [aKernel('k1', { required_bytes: 6 * GIB, last_failed_allocation_at: at, ...changes })] });
  const told = changes => reader.read(needs(changes), NOW).map(news => news.kind);
  assert.deepEqual(told({}), ['short']);
  assert.deepEqual(told({ memory_limit_bytes: 2 * GIB }), []);
  assert.deepEqual(told({ memory_limit_bytes: 2 * GIB }), []);
  assert.deepEqual(told({ memory_limit_bytes: 2 * GIB, last_failed_allocation_at: '2026-01-01T00:00:09Z' }), ['short']);
});

test('a lack of memory holds until the kernel ends, restarts or has freed half of its memory', () => {
  const reader = new NewsReader(aMemory('[]'));
  const short = changes => aStatus({ kernels: [aKernel('k1', { required_bytes: 6 * GIB, used_bytes: 4 * GIB, ...changes })] });
  const holds = changes => reader.standing(short(changes)).size === 1;
  assert.ok(holds({ used_bytes: GIB }), 'one large allocation was refused: what it has stays small');
  assert.ok(holds({}));
  assert.ok(holds({ used_bytes: 3 * GIB }));
  assert.ok(!holds({ used_bytes: 2 * GIB }));
  assert.ok(!holds({ state: 'ended' }));
  assert.ok(!holds({ required_bytes: null }), 'a restart begins anew');
});

test('a queued change of size is told once it is in force, and not one that was withdrawn', () => {
  const reader = new NewsReader(aMemory('[]'));
  const resize = { state: 'queued', gpus: 0.5, requested_memory_bytes: null, priority: 'normal', since: 't1' };
  const tell = changes => {
    const kernel = aKernel('k1', { requested_memory_bytes: null, priority: 'normal', ...changes });
    return reader.read(aStatus({ kernels: [kernel] }), NOW).map(news => news.kind);
  };
  assert.deepEqual(tell({ gpus: 0.25, resize }), []);
  assert.deepEqual(tell({ gpus: 0.5, resize: null }), ['resized']);
  assert.deepEqual(tell({ gpus: 0.5, resize: null }), []);
  assert.deepEqual(tell({ gpus: 0.5, resize: { ...resize, gpus: 0.75, since: 't2' } }), []);
  assert.deepEqual(tell({ gpus: 0.5, resize: null }), [], 'withdrawn');
});

test('who waited long for a GPU is told once it is there, and who waited for a moment is not', () => {
  const reader = new NewsReader(aMemory('[]'));
  const all = state => aStatus({ kernels: [aKernel('k1', { state }), aKernel('k2', { state: 'queued' })] });
  assert.deepEqual(reader.read(all('queued'), NOW), []);
  assert.deepEqual(reader.read(all('queued'), after(20)), []);
  assert.deepEqual(reader.read(all('starting'), after(31)).map(news => [news.kind, news.kernel.id]), [['served', 'k1']]);
  assert.deepEqual(reader.read(all('on_gpu'), after(32)), []);
  assert.deepEqual(reader.read(all('queued'), after(40)), []);
  assert.deepEqual(reader.read(all('on_gpu'), after(60)), []);
});

test('a wait for memory to come back counts from when it began, and one that ends with the kernel is no news', () => {
  const waking = seconds => {
    const queued = { reason: 'no room', seconds, ahead: 0, expected_seconds: null };
    return aKernel('k1', { state: 'restoring', residency: { queued } });
  };
  const reader = new NewsReader(aMemory('[]'));
  reader.read(aStatus({ kernels: [waking(29)] }), NOW);
  const back = aStatus({ kernels: [aKernel('k1')] });
  assert.deepEqual(reader.read(back, after(2)).map(news => news.kind), ['served']);
  reader.read(aStatus({ kernels: [waking(100)] }), after(100));
  const over = aStatus({ kernels: [aKernel('k1', { state: 'ended' })] });
  assert.deepEqual(reader.read(over, after(200)), []);
});

test('what one tab remembers another does not forget', () => {
  const memory = aMemory('[]');
  const [one, other] = [new Remembered(memory), new Remembered(memory)];
  one.add(['told by one']);
  other.add(['told by the other']);
  const later = new Remembered(memory);
  assert.deepEqual([later.has('told by one'), later.has('told by the other')], [true, true]);
});
