// The actions on another user's shared kernel, and its notices, without a browser. Run by
// test_model.py.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { aKernel, aMemory, aStatus, compiled, over } = require('./scripts.cjs');

const { obstacle } = compiled('model/action_rules');
const { divideShared, inOrder, shareOf, showsOwners } = compiled('model/kernel_access');
const { kernelLine } = compiled('model/kernel_line');
const { NewsReader } = compiled('model/news');
const { PrefetchRule } = compiled('sessions/prefetch');

const ACTIONS = ['open', 'newNotebook', 'follow', 'resize', 'swapOut', 'restore', 'postponeCulling', 'share', 'restart', 'shutDown'];
const trans = { __: (text, ...values) => values.reduce((all, value, at) => all.replaceAll(`%${at + 1}`, value), text) };
const shared = (access, changes = {}) => aKernel('k-9', { owner: 'grace', label: 'big.ipynb', access, ...changes });
const possible = kernel => ACTIONS.filter(one => obstacle(one, kernel, aStatus()) === null);

test('a kernel that is shared allows what came with it, and says of the rest why not', () => {
  assert.deepEqual(possible(shared('read')), ['newNotebook', 'follow']);
  assert.deepEqual(possible(shared('write')), ['newNotebook', 'follow', 'restart']);
  assert.deepEqual(possible(shared('write', { state: 'swapped_out' })), ['newNotebook', 'follow', 'restore', 'restart']);
  assert.deepEqual(possible(shared('read', { state: 'swapped_out' })), ['newNotebook', 'follow']);
  const why = (action, kernel) => obstacle(action, kernel, aStatus());
  assert.equal(why('restart', shared('read')), 'read-only');
  assert.equal(why('restore', shared('read', { state: 'swapped_out' })), 'read-only');
  for (const action of ['resize', 'swapOut', 'share', 'shutDown']) {
    assert.equal(why(action, shared('write')), 'owners-alone', action);
  }
});

test('one shares what one owns, once it is a kernel that notebooks can be attached to', () => {
  const why = changes => obstacle('share', aKernel('k-1', changes), aStatus());
  assert.equal(why({ access: 'own' }), null);
  assert.equal(why({}), null, 'a server that is older says nothing of access');
  assert.equal(why({ state: 'queued' }), null);
  assert.equal(why({ state: 'ended' }), 'ended');
  assert.equal(why({ name: '' }), 'not-shareable');
});

test('what others share is a list of its own, and groups by owners are for who sees all', () => {
  const kernels = [shared('write', { id: 'k-3', owner: 'hugo' }), aKernel('k-1'), shared('read')];
  const { listed, shared: given } = divideShared(kernels);
  assert.deepEqual(listed.map(kernel => kernel.id), ['k-1']);
  assert.deepEqual(given.map(kernel => kernel.id), ['k-9', 'k-3']);
  assert.equal(showsOwners(aStatus({ kernels })), false);
  assert.equal(showsOwners(aStatus({ kernels: [...kernels, aKernel('k-4', { owner: 'eve', access: 'own' })] })), true);
});

test('a line says of a kernel that is shared whether cells can be run in it', () => {
  assert.equal(kernelLine(shared('read'), trans), '0.25 GPU · 0 / 4 GiB · on GPU · shared, read-only');
  assert.equal(kernelLine(shared('write'), trans), '0.25 GPU · 0 / 4 GiB · on GPU · shared');
  assert.equal(kernelLine(aKernel('k-1', { access: 'own' }), trans), '0.25 GPU · 0 / 4 GiB · on GPU');
});

test('who may use a kernel may wake it by turning to it, and who may see it may not', () => {
  const asleep = access => shared(access, { state: 'swapped_out' });
  assert.equal(new PrefetchRule().mayPrefetch(asleep('write'), 'ada', 0), true);
  assert.equal(new PrefetchRule().mayPrefetch(asleep('read'), 'ada', 0), false);
  assert.equal(new PrefetchRule().mayPrefetch(asleep('own'), 'ada', 0), false, 'an administrator only looks');
});

test('a share is asked for by a name, and users are listed before teams', () => {
  assert.equal(shareOf({ kind: 'user', name: '  ', access: 'read' }), null);
  assert.deepEqual(shareOf({ kind: 'team', name: ' vision ', access: 'write' }), { kind: 'team', name: 'vision', access: 'write' });
  const team = { kind: 'team', name: 'a', access: 'read' };
  const users = ['zoe', 'bob'].map(name => ({ kind: 'user', name, access: 'read' }));
  assert.deepEqual(inOrder([team, ...users]).map(({ name }) => name), ['bob', 'zoe', 'a']);
});

const told = (reader, ...kernels) => reader.read(aStatus({ kernels }), new Date()).map(({ kind, kernel }) => `${kind} ${kernel.id}`);

test('what was shared meanwhile is told once, also over reloads', () => {
  const memory = aMemory();
  assert.deepEqual(told(new NewsReader(memory), shared('read')), ['shared k-9']);
  const reloaded = new NewsReader(memory);
  assert.deepEqual(told(reloaded, shared('read')), []);
  assert.deepEqual(told(reloaded, shared('write')), ['shared k-9'], 'more is allowed now');
  assert.deepEqual(told(reloaded, shared('write')), []);
});

test('what is taken back is told, and told anew when it is given again', () => {
  const reader = new NewsReader(aMemory());
  assert.deepEqual(told(reader, aKernel('k-1')), []);
  assert.deepEqual(told(reader, aKernel('k-1'), shared('read')), ['shared k-9']);
  assert.deepEqual(told(reader, aKernel('k-1')), ['unshared k-9']);
  assert.deepEqual(told(reader, aKernel('k-1')), []);
  assert.deepEqual(told(reader, shared('read')), ['shared k-9']);
});

test('a kernel that ended while it was shared is not said to be taken back while the server tells of it', () => {
  const reader = new NewsReader(aMemory());
  told(reader, shared('read'));
  const ended = { ...over('k-9', {}), owner: 'grace', access: 'read' };
  assert.deepEqual(told(reader, ended), []);
});
