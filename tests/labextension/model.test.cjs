// The model, the client's refusals and the figures, without a browser. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const compiled = process.env.ALIQUOT_COMPILED;
const { GpuKernelsModel, ...derived } = require(path.join(compiled, 'model.js'));
const { NewsReader } = require(path.join(compiled, 'news.js'));
const compute = require(path.join(compiled, 'compute.js'));
const quantities = require(path.join(compiled, 'quantities.js'));
const { StatusError } = require(path.join(compiled, 'tokens.js'));

const GIB = 2 ** 30;

function aStatus(changes = {}) {
  return {
    version: '0.1.0',
    user: { name: 'ada', role: 'user' },
    node: { name: 'here', driver: 'softgpu', enforcer: 'hook', agent: 'ok', message: null },
    devices: [],
    kernels: [],
    queue: { length: 0 },
    ...changes
  };
}

/** A source whose answers are given by hand: each request waits until it is answered. */
class ASource {
  waiting = [];
  requests = 0;
  atOnce = 0;
  mostAtOnce = 0;

  fetch() {
    this.requests += 1;
    this.atOnce += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.atOnce);
    this._arrived?.();
    return new Promise((resolve, reject) => this.waiting.push({ resolve, reject })).finally(() => {
      this.atOnce -= 1;
    });
  }

  async nextRequest() {
    while (this.waiting.length === 0) {
      await new Promise(resolve => (this._arrived = resolve));
    }
    return this.waiting.shift();
  }
}

/** The next state for which `claim` holds. */
function until(model, claim) {
  return new Promise(resolve => {
    const look = (_, state) => {
      if (claim(state)) {
        model.changed.disconnect(look);
        resolve(state);
      }
    };
    model.changed.connect(look);
    look(model, model.state);
  });
}

const turn = () => new Promise(resolve => setTimeout(resolve, 0));

function aModel(t, intervalSeconds = 0.01) {
  const source = new ASource();
  const model = new GpuKernelsModel({ source, intervalSeconds });
  t.after(() => model.dispose());
  return { source, model };
}

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

test('the parts of a device add up to its memory', () => {
  const cases = [
    { memory_bytes: 16, used_bytes: 3, mine_bytes: 1, reserved_bytes: 12, want: [1, 2, 9, 4] },
    { memory_bytes: 16, used_bytes: 14, mine_bytes: 0, reserved_bytes: 12, want: [0, 14, 0, 2] },
    { memory_bytes: 16, used_bytes: 20, mine_bytes: 30, reserved_bytes: 40, want: [16, 0, 0, 0] },
    { memory_bytes: 0, used_bytes: 0, mine_bytes: 0, reserved_bytes: 0, want: [0, 0, 0, 0] }
  ];
  for (const { want, ...device } of cases) {
    const { mine, others, held, free } = derived.memoryParts(device);
    assert.deepEqual([mine, others, held, free], want);
  }
});

test('only a path of mine opens a notebook', () => {
  const status = aStatus();
  const path = (label, owner = 'ada') => derived.notebookPath({ label, owner }, status);
  assert.equal(path('models/train.ipynb'), 'models/train.ipynb');
  assert.equal(path('models/train.ipynb', 'bob'), null);
  assert.equal(path('/etc/x.ipynb'), null);
  assert.equal(path('javascript:alert(1)'), null);
  assert.equal(path(''), null);
});

test('a kernel is called by its notebook, its label or its kernelspec', () => {
  const title = (label, name = 'python3.gpu-0.25') => derived.kernelTitle({ id: '0123456789', label, name });
  assert.equal(title('models/train.ipynb'), 'train.ipynb');
  assert.equal(title('nightly run'), 'nightly run');
  assert.equal(title(' '), 'python3.gpu-0.25');
  assert.equal(title('', ''), '01234567');
});

test('a failed self-check gives its reason, a good one none', () => {
  const failure = interception => derived.interceptionFailure({ interception });
  assert.equal(failure('failed: libcuda was loaded first'), 'libcuda was loaded first');
  assert.equal(failure('failed'), 'the self-check failed');
  assert.equal(failure('holds'), null);
  assert.equal(failure('unknown'), null);
});

test('owners show beside kernels of others', () => {
  const status = (...owners) => aStatus({ kernels: owners.map(owner => ({ owner })) });
  assert.equal(derived.showsOwners(status()), false);
  assert.equal(derived.showsOwners(status('ada', 'ada')), false);
  assert.equal(derived.showsOwners(status('ada', 'bob')), true);
});

test('amounts read in binary units', () => {
  const { formatBytes, formatLike, formatPart, formatSeconds, formatShare, percent } = quantities;
  assert.equal(formatBytes(0), '0 B');
  assert.equal(formatBytes(1023), '1023 B');
  assert.equal(formatBytes(GIB - 1), '1.0 GiB');
  assert.equal(formatBytes(3.1 * GIB), '3.1 GiB');
  assert.deepEqual(formatPart(3.1 * GIB, 16 * GIB), ['3.1', '16.0 GiB']);
  assert.deepEqual(formatPart(1024, 16 * GIB), ['1.0 KiB', '16.0 GiB']);
  assert.deepEqual(formatPart(0, 16 * GIB), ['0.0', '16.0 GiB']);
  assert.equal(formatLike(GIB / 2, 16 * GIB), '0.5 GiB');
  assert.equal(formatShare(0.1 + 0.2), '0.3');
  assert.equal(formatShare(2.5), '2.5');
  assert.deepEqual([0.42, 12.4, 59.7, 200, 7500].map(formatSeconds), [
    '0.4 s', '12 s', '1 min 0 s', '3 min 20 s', '2 h 5 min'
  ]);
  assert.equal(percent(1, 0), '0%');
  assert.equal(percent(30, 16), '100%');
});

test('GPU time reads in per cent that add up', () => {
  const parts = (share_used, share_entitled) => compute.shareParts({ share_used, share_entitled });
  assert.deepEqual(parts(0.5, 0.75), { used: 50, held: 25, free: 25 });
  assert.deepEqual(parts(0.75, 0.5), { used: 75, held: 0, free: 25 });
  assert.deepEqual(parts(null, null), { used: 0, held: 0, free: 100 });
  assert.deepEqual(parts(7, -1), { used: 100, held: 0, free: 0 });
  assert.deepEqual([0, 0.004, 0.255, 1].map(compute.formatPercent), ['0%', '<1%', '26%', '100%']);
  assert.equal(compute.formatStretch(1.031), '1.03×');
  assert.deepEqual([0.002, 1.25].map(compute.formatMoment), ['2.0 ms', '1.3 s']);
});

test('time is shown of devices that a kernel used or wants, and of no others', () => {
  const device = (index, told) => ({ index, ...told });
  const time = (share_used, share_entitled) => ({ compute: { share_used, share_entitled } });
  const devices = [
    device(0, time(0, null)), device(1, time(null, 0.5)), device(2, time(null, null)), device(3, { compute: null }), device(4, {})
  ];
  assert.deepEqual(compute.timedDevices({ devices }).map(({ index }) => index), [0, 1]);
});

/** A memory as the browser's storage is one. */
function aMemory(text = null) {
  return { get: () => text, set: changed => (text = changed) };
}

function anEnding(changes = {}) {
  return { code: 'culled', message: 'the kernel was ended', at: '2026-01-01T00:00:00Z', by: '', ...changes };
}

function aKernel(id, changes = {}) {
  const nothing = { ending: null, last_crash: null, ending_soon: null };
  return { id, owner: 'ada', state: 'resident', label: '', name: 'python3', ...nothing, ...changes };
}

const over = (id, changes) => aKernel(id, { state: 'ended', ending: anEnding(changes) });

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

test('kernels that are over and those that are not are told apart', () => {
  const kernels = [aKernel('k1'), over('k2'), aKernel('k3', { state: 'ended' })];
  const { live, ended } = derived.divide(kernels);
  assert.deepEqual([live.map(k => k.id), ended.map(k => k.id)], [['k1', 'k3'], ['k2']]);
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
