// What users are told of, each thing once. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { aKernel, aMemory, aStatus, anEnding, compiled, over } = require('./scripts.cjs');
const { NewsReader } = compiled('news');

test('what ended before a browser saw the server is no news, and what ends then is told once', () => {
  const memory = aMemory();
  const old = over('k1');
  const reader = new NewsReader(memory);
  assert.deepEqual(reader.read(aStatus({ kernels: [old] })), []);
  const status = aStatus({ kernels: [old, over('k2')] });
  assert.deepEqual(reader.read(status).map(news => [news.kind, news.kernel.id]), [['ended', 'k2']]);
  assert.deepEqual(reader.read(status), []);
  const later = new NewsReader(memory);
  const reloaded = aStatus({ kernels: [...status.kernels, over('k3'), aKernel('k4', { last_crash: anEnding() })] });
  assert.deepEqual(later.read(reloaded).map(news => news.key.split(' ').slice(0, 2)), [
    ['ended', 'k3'],
    ['restarted', 'k4']
  ]);
});

test('only what happens to my own kernels, and what I did not do, is news', () => {
  const reader = new NewsReader(aMemory('[]'));
  const kernels = [over('k1', { by: 'ada' }), { ...over('k2'), owner: 'bob' }, over('k3', { code: 'stopped' })];
  assert.deepEqual(reader.read(aStatus({ kernels })).map(news => news.kernel.id), ['k3']);
  const admin = new NewsReader(aMemory('[]'));
  assert.deepEqual(admin.read(aStatus({ user: { name: 'ada', role: 'admin' }, kernels })), []);
});

test('an announced end is told at once, and again when it is announced anew', () => {
  const reader = new NewsReader(aMemory('no JSON'));
  const soon = at => aStatus({ kernels: [aKernel('k1', { ending_soon: { at, reason: 'idle', can_keep: true } })] });
  assert.equal(reader.read(soon('t1')).length, 1);
  assert.equal(reader.read(soon('t1')).length, 0);
  assert.equal(reader.read(soon('t2')).length, 1);
});
