'use strict';

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { aKernel, compiled } = require('./scripts.cjs');
const { shutDownKernel } = compiled('sessions/shut_down');

const ended = (id, code, minute, changes = {}) =>
  aKernel(id, {
    ...{ state: 'ended', owner: 'ada', label: 'a/train.ipynb', gpus: 0.25 },
    termination: { code, message: '', at: `2026-01-01T00:0${minute}:00Z`, exit_code: null, signal: null, by: 'ada' },
    ...changes
  });
const found = (...kernels) => shutDownKernel(kernels, 'ada', 'a/train.ipynb')?.id ?? null;

test('a notebook whose last GPU kernel was shut down, withdrawn or culled gets none unasked', () => {
  for (const code of ['user', 'withdrawn', 'culled']) {
    assert.equal(found(ended('k-1', code, 1)), 'k-1');
  }
});

test('a kernel that ended otherwise, without a GPU, or of another notebook or user says nothing', () => {
  for (const code of ['stopped', 'oom', 'memory_limit', 'crash', 'node_lost', 'start_failed']) {
    assert.equal(found(ended('k-1', code, 1)), null, code);
  }
  assert.equal(found(ended('k-1', 'user', 1, { gpus: 0 })), null);
  assert.equal(found(ended('k-1', 'user', 1, { label: 'b/train.ipynb' })), null);
  assert.equal(found(ended('k-1', 'user', 1, { owner: 'bob' })), null);
  assert.equal(found(aKernel('k-1', { owner: 'ada', label: 'a/train.ipynb' })), null);
  assert.equal(found(), null);
});

test('of several kernels of one notebook the last counts', () => {
  assert.equal(found(ended('k-1', 'user', 1), ended('k-2', 'crash', 2)), null);
  assert.equal(found(ended('k-2', 'crash', 1), ended('k-1', 'user', 2)), 'k-1');
});
