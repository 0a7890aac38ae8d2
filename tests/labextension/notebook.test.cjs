// A notebook's line about its kernel's GPU, the reason of its cells' wait, and its prefetches. Run
// by test_model.py.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { aStatus, compiled, GIB } = require('./scripts.cjs');
const { Signal } = require('@lumino/signaling');
const { AttachedKernel } = compiled('sessions/attached_kernel');
const { kernelHint, kernelLine } = compiled('model/kernel_line');
const { GpuKernelsModel } = compiled('model/model');
const { formatTime } = compiled('base/quantities');
const { StatusError } = compiled('tokens');
const { isNotice, waitOf, WaitTeller } = compiled('model/waits');
const { PrefetchRule } = compiled('sessions/prefetch');

const fill = (text, values) => values.reduce((said, value, index) => said.replaceAll(`%${index + 1}`, value), text);
const trans = {
  __: (text, ...values) => fill(text, values),
  _n: (one, many, count, ...values) => fill(count === 1 ? one : many, [count, ...values])
};

function aKernel(changes = {}) {
  return {
    id: 'k-1',
    owner: 'ada',
    gpus: 0.25,
    state: 'on_gpu',
    reason: null,
    queue_position: null,
    expected_start: null,
    memory_limit_bytes: 20 * GIB,
    used_bytes: 3.1 * GIB,
    residency: { queued: null },
    termination: null,
    devices: [],
    ...changes
  };
}

const waits = (changes = {}) => ({
  queued: { reason: 'others have their turn', seconds: 1.5, ahead: 2, expected_seconds: 2.4, ...changes }
});
const moving = (done, total) => ({ queued: null, moving: { done_bytes: done, total_bytes: total } });

test('the line has size, memory and state', () => {
  assert.equal(kernelLine(aKernel(), trans), '0.25 GPU · 3.1 / 20 GiB · on GPU');
  assert.equal(kernelLine(aKernel({ gpus: 2.5, state: 'swapped_out' }), trans), '2.5 GPUs · 3.1 / 20 GiB · swapped out');
  assert.equal(kernelLine(aKernel({ used_bytes: 0 }), trans), '0.25 GPU · 0 / 20 GiB · on GPU');
  assert.equal(kernelLine(aKernel({ used_bytes: 4096 }), trans), '0.25 GPU · 4 KiB / 20 GiB · on GPU');
});

test('the line of a kernel that has no memory yet, or no more, says why in plain words', () => {
  const line = changes => kernelLine(aKernel({ memory_limit_bytes: 0, ...changes }), trans);
  assert.equal(line({ state: 'queued', queue_position: 3 }), '0.25 GPU · queued: 2 ahead');
  assert.equal(line({ state: 'queued', queue_position: 1 }), '0.25 GPU · queued: next');
  assert.equal(line({ state: 'queued' }), '0.25 GPU · queued');
  assert.equal(line({ state: 'starting' }), '0.25 GPU · starting');
  assert.equal(line({ state: 'ended', memory_limit_bytes: 20 * GIB }), '0.25 GPU · ended');
});

test('the line tells how far a move is, where that is told', () => {
  const line = changes => kernelLine(aKernel(changes), trans);
  assert.equal(line({ state: 'restoring' }), '0.25 GPU · 3.1 / 20 GiB · restoring');
  assert.equal(line({ state: 'restoring', residency: moving(GIB, 3 * GIB) }), '0.25 GPU · 3.1 / 20 GiB · restoring: 33%');
  assert.equal(line({ state: 'restoring', residency: waits() }), '0.25 GPU · 3.1 / 20 GiB · queued: 2 ahead');
  const leaving = { ...moving(2 * GIB, 3 * GIB), state: 'swapping_out' };
  assert.equal(line({ residency: leaving }), '0.25 GPU · 3.1 / 20 GiB · swapping out: 66%');
  assert.equal(line({ residency: moving(2 * GIB, 3 * GIB) }), '0.25 GPU · 3.1 / 20 GiB · on GPU');
  assert.equal(line({ state: 'restoring', residency: waits({ ahead: 0 }) }), '0.25 GPU · 3.1 / 20 GiB · queued for memory');
  const coming = { ...waits({ ahead: 0 }), state: 'swapping_in' };
  assert.equal(line({ state: 'restoring', residency: coming }), '0.25 GPU · 3.1 / 20 GiB · restoring');
  assert.equal(line({ state: 'restoring', residency: moving(0, 0) }), '0.25 GPU · 3.1 / 20 GiB · restoring');
  assert.equal(line({ residency: { state: 'swapping_out' } }), '0.25 GPU · 3.1 / 20 GiB · swapping out');
  assert.equal(line({ residency: waits() }), '0.25 GPU · 3.1 / 20 GiB · queued: 2 ahead');
  assert.equal(line({ residency: waits({ ahead: 0 }) }), '0.25 GPU · 3.1 / 20 GiB · queued for memory');
});

test('the hint is a sentence with the reason', () => {
  const ended = { state: 'ended', termination: { message: 'The kernel was ended after 60 min idle.' } };
  assert.match(kernelHint(aKernel(ended), trans), /0.25 GPU, ended\. The kernel was ended after 60 min idle\.$/);
  assert.match(kernelHint(aKernel(), trans), /3\.1 of 20\.0 GiB of memory used, on GPU$/);
});

test('cells wait in the queue and for memory, with how many before them and how long', () => {
  const pending = waitOf(aKernel({ state: 'queued', queue_position: 3, reason: 'Needs 1 GPU; none is free' }), trans);
  assert.deepEqual([pending.text, pending.why], ['waits for a GPU: 2 kernels ahead', 'Needs 1 GPU; none is free']);
  assert.equal(waitOf(aKernel({ state: 'queued', queue_position: 1 }), trans).text, 'waits for a GPU: next in the queue');
  const expected_start = new Date(Date.now() + 60_000).toISOString();
  const soon = waitOf(aKernel({ state: 'queued', queue_position: 1, expected_start }), trans);
  const time = formatTime(expected_start, new Date());
  assert.equal(soon.text, `waits for a GPU: next in the queue; expected to start at ${time}`);
  const memory = waitOf(aKernel({ state: 'restoring', residency: waits() }), trans);
  assert.deepEqual([memory.text, memory.why], ['waits for GPU memory: 2 kernels ahead, about 3 s', 'others have their turn']);
  const alone = waitOf(aKernel({ state: 'swapped_out', residency: waits({ ahead: 0, expected_seconds: null }) }), trans);
  assert.equal(alone.text, 'waits for GPU memory');
});

test('a cell waits whose kernel is on the GPU and finds no room for more, until it is stopped', () => {
  const more = waitOf(aKernel({ residency: waits() }), trans);
  assert.deepEqual([more.kind, more.text], ['memory', 'waits for GPU memory: 2 kernels ahead, about 3 s']);
  assert.equal(more.why, 'others have their turn');
  const stopped = { residency: waits(), interrupted_at: '2026-01-01T00:00:00Z' };
  assert.equal(waitOf(aKernel(stopped), trans).kind, 'stopping');
});

test('a copy under way is shown as far as it is, and not where nobody tells', () => {
  const told = waitOf(aKernel({ state: 'restoring', residency: moving(3.1 * GIB, 6 * GIB) }), trans);
  assert.deepEqual(told.progress, { done: 3.1 * GIB, total: 6 * GIB });
  assert.match(told.text, /3\.1 of 6\.0 GiB/);
  assert.equal(waitOf(aKernel({ state: 'restoring' }), trans).progress, null);
  const coming = waitOf(aKernel({ state: 'restoring', residency: { ...waits(), state: 'swapping_in' } }), trans);
  assert.deepEqual([coming.kind, coming.text], ['copy', 'waits while its GPU memory is restored, about 3 s']);
});

test('a cell that was interrupted while it waits is stopping, until it has ended', () => {
  const interrupted_at = '2026-01-01T00:00:00Z';
  for (const state of ['restoring', 'swapped_out', 'checkpointed']) {
    const told = waitOf(aKernel({ state, interrupted_at, residency: waits() }), trans);
    assert.deepEqual([told.kind, told.text], ['stopping', 'is stopping']);
  }
  assert.equal(waitOf(aKernel({ state: 'on_gpu', interrupted_at }), trans), null);
  assert.equal(waitOf(aKernel({ state: 'restoring', interrupted_at: null, residency: waits() }), trans).kind, 'memory');
});

test('cells of a kernel that has what it needs, or no GPU, do not wait', () => {
  assert.equal(waitOf(null, trans), null);
  for (const state of ['on_gpu', 'starting', 'ended']) {
    assert.equal(waitOf(aKernel({ state }), trans), null);
  }
  assert.equal(waitOf(aKernel({ state: 'queued', gpus: 0 }), trans), null);
});

test('a cell that runs in a swapped kernel is not said to wait', () => {
  const wait = waitOf(aKernel({ state: 'swapped_out' }), trans);
  assert.equal(wait.kind, 'asleep');
  assert.doesNotMatch(wait.text, /waits/);
  const told = waitOf(aKernel({ state: 'swapped_out', residency: { queued: null, restore_seconds: 2.3 } }), trans);
  assert.match(told.text, /restored when the cell uses the GPU, about 3 s$/);
  assert.equal(new WaitTeller(trans).next(wait, 5000), null);
});

test("the relay's notice of a wait is known from what a program writes", () => {
  const first = '[Aliquot: waiting for GPU memory: others came before; 2 kernels before it; about 3 s]\n';
  const next = '[Aliquot: still waiting for GPU memory after 12 s: others have their turn]\n';
  assert.equal(isNotice(first), true);
  assert.equal(isNotice(first + next), true);
  assert.equal(isNotice(`warning: slow\n${first}`), false);
  assert.equal(isNotice('[Aliquot: 3 messages (0.1 MB) of this cell\'s output are missing here. ]\n'), false);
  assert.equal(isNotice(''), false);
});

test('a screen reader hears of a wait that lasts, of a change of place, and of the end; not of seconds', () => {
  const teller = new WaitTeller(trans);
  const behind = (ahead, seconds) =>
    waitOf(aKernel({ state: 'restoring', residency: waits({ ahead, expected_seconds: seconds }) }), trans);
  assert.equal(teller.next(behind(2, 9), 0), null);
  assert.match(teller.next(behind(2, 8), 1000), /2 kernels ahead/);
  assert.equal(teller.next(behind(2, 3), 20000), null);
  assert.match(teller.next(behind(1, 3), 21000), /1 kernel ahead/);
  assert.equal(teller.next(behind(0, 2), 22000), null);
  assert.match(teller.next(null, 23000), /goes on/);
  assert.equal(teller.next(null, 24000), null);
});

test('a wait that is over at once is not told at all', () => {
  const teller = new WaitTeller(trans);
  assert.equal(teller.next(waitOf(aKernel({ state: 'restoring' }), trans), 0), null);
  assert.equal(teller.next(null, 400), null);
});

test('a hint goes to a swapped kernel of mine, at most one in a second', () => {
  const rule = new PrefetchRule();
  const swapped = aKernel({ state: 'swapped_out' });
  assert.equal(rule.mayPrefetch(swapped, 'ada', 0), true);
  assert.equal(rule.mayPrefetch(swapped, 'ada', 999), false);
  assert.equal(rule.mayPrefetch(aKernel({ id: 'k-2', state: 'checkpointed' }), 'ada', 999), true);
  assert.equal(rule.mayPrefetch(swapped, 'ada', 1000), true);
  assert.equal(rule.mayPrefetch(swapped, 'ada', 1500), false);
});

test('no hint goes to a kernel that is there, ended, unknown, or of somebody else', () => {
  const rule = new PrefetchRule();
  for (const state of ['queued', 'starting', 'on_gpu', 'restoring', 'ended']) {
    assert.equal(rule.mayPrefetch(aKernel({ state }), 'ada', 0), false);
  }
  assert.equal(rule.mayPrefetch(aKernel({ state: 'swapped_out' }), 'bob', 0), false);
  assert.equal(rule.mayPrefetch(null, 'ada', 0), false);
});

/** A notebook's session; the test changes its kernel. */
class ASession {
  kernelChanged = new Signal(this);
  disposed = new Signal(this);
  session = { kernel: null };

  start(id) {
    this.session = { kernel: id === null ? null : { id } };
    this.kernelChanged.emit();
  }
}

/** Returns a kernel attached to a model, which gets its answers from `answer`. */
function anAttachment(t, answer) {
  const fetchText = async () => (answer.status ? JSON.stringify(answer.status) : Promise.reject(answer.problem));
  const model = new GpuKernelsModel({ source: { fetchText }, intervalSeconds: 0.01 });
  const session = new ASession();
  const attached = new AttachedKernel(model, session);
  model.watch();
  t.after(() => [attached.dispose(), model.dispose()]);
  return { model, session, attached };
}

/** Waits until `claim` holds, at once or after a change. */
function until(changing, claim) {
  return new Promise(resolve => {
    const look = () => claim() && resolve(changing.changed.disconnect(look));
    changing.changed.connect(look);
    look();
  });
}

test("a notebook follows its own kernel's figures, and is told of nobody else's", async t => {
  const answer = { status: aStatus({ kernels: [aKernel(), aKernel({ id: 'k-2' })] }) };
  const { model, session, attached } = anAttachment(t, answer);
  assert.equal(attached.attachment, 'unknown');
  session.start('k-1');
  await until(attached, () => attached.attachment === 'ours');
  assert.equal(attached.kernel.id, 'k-1');
  let changes = 0;
  attached.changed.connect(() => (changes += 1));
  const other = aKernel({ id: 'k-2', used_bytes: 5 });
  answer.status = aStatus({ kernels: [aKernel(), other] });
  await until(model, () => model.state.status.kernels[1].used_bytes === 5);
  assert.equal(changes, 0);
  answer.status = aStatus({ kernels: [aKernel({ state: 'swapped_out' }), other] });
  await until(attached, () => attached.kernel.state === 'swapped_out');
  assert.equal(changes, 1);
});

test('a kernel is not said to have no GPU before the server was asked since it started', async t => {
  const answer = { status: aStatus({ kernels: [] }) };
  const { model, session, attached } = anAttachment(t, answer);
  await model.refresh();
  const seen = [];
  attached.changed.connect(() => seen.push(attached.attachment));
  answer.status = aStatus({ kernels: [aKernel()] });
  session.start('k-1');
  await until(attached, () => attached.attachment === 'ours');
  assert.deepEqual(seen, ['ours']);
  answer.status = aStatus({ kernels: [] });
  session.start('k-9');
  await until(attached, () => attached.attachment === 'none');
});

test('a kernel is not said to have no GPU where the question for it failed', async t => {
  const answer = { status: aStatus({ kernels: [] }) };
  const { model, session, attached } = anAttachment(t, answer);
  await until(model, () => model.state.status !== null);
  const known = answer.status;
  answer.status = null;
  answer.problem = new StatusError('unreachable', 'it is away');
  session.start('k-1');
  await model.readAnew();
  assert.equal(attached.attachment, 'unknown');
  answer.status = known;
  await until(attached, () => attached.attachment === 'none');
});

test('a kernel that ended stays in sight until another starts', async t => {
  const answer = { status: aStatus({ kernels: [aKernel()] }) };
  const { model, session, attached } = anAttachment(t, answer);
  session.start('k-1');
  await until(attached, () => attached.attachment === 'ours');
  answer.status = aStatus({ kernels: [aKernel({ state: 'ended', termination: { message: 'out of memory' } })] });
  session.start(null);
  await until(attached, () => attached.kernel.state === 'ended');
  await model.refresh();
  assert.equal(attached.attachment, 'ours');
});

test('on a server without Aliquot a notebook is told so', async t => {
  const { session, attached } = anAttachment(t, { problem: new StatusError('not-installed', '') });
  session.start('k-1');
  await until(attached, () => attached.attachment === 'elsewhere');
  assert.equal(attached.kernel, null);
});
