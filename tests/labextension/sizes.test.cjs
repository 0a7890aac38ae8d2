// Sizes, the choice of one, and the kernelspecs that a page knows, without a browser. Run by test_model.py.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const compiled = process.env.ALIQUOT_COMPILED;
const sizes = require(path.join(compiled, 'sizes/sizes.js'));
const { problemOf } = require(path.join(compiled, 'sizes/resize_request.js'));
const { SizeDryRuns } = require(path.join(compiled, 'sizes/size_dry_runs.js'));
const { StatusError } = require(path.join(compiled, 'tokens.js'));
const { SizeChoice } = require(path.join(compiled, 'sizes/size_choice.js'));
const { sharingText } = require(path.join(compiled, 'sizes/sharing_words.js'));
const { KnownSpecs } = require(path.join(compiled, 'sizes/known_specs.js'));
const { nearestNow, refusalNow } = require(path.join(compiled, 'sizes/refusal_now.js'));
const { Signal } = require('@lumino/signaling');

const GIB = 2 ** 30;
const PATTERN = '(?<kernelspec>.+)\\.gpu-(?<gpus>[0-9.]+)(-(?<memory_gib>[0-9]+)g)?(?<low>-low)?';

function aSize(name, changes = {}) {
  return {
    name,
    kernelspec: name.split('.gpu-')[0],
    display_name: name,
    gpus: Number(/gpu-([0-9.]+)/.exec(name)[1]),
    requested_memory_bytes: null,
    priority: name.endsWith('-low') ? 'low' : 'normal',
    image: null,
    description: '',
    is_default: false,
    ...changes
  };
}

function offers(changes = {}) {
  return {
    may_use_normal_priority: true,
    sizes: ['python3.gpu-0.25', 'python3.gpu-1', 'python3.gpu-0.25-low', 'torch.gpu-1'].map(name => aSize(name)),
    grammar: '',
    pattern: PATTERN,
    largest_gpus: 2,
    step: 0.01,
    device_memory_bytes: 16 * GIB,
    ...changes
  };
}

function asked(gpus, memoryGib = null, priority = 'normal') {
  return { gpus, memoryGib, priority };
}

function aSpec(name, display_name = name) {
  return { name, display_name, language: 'python', resources: { 'logo-svg': '/logo' }, metadata: {} };
}

/** Jupyter's manager of kernelspecs, listing these. */
class AListing {
  constructor(...names) {
    this.specs = { default: names[0], kernelspecs: Object.fromEntries(names.map(name => [name, aSpec(name)])) };
  }
  ready = Promise.resolve();
  specsChanged = new Signal(this);
}

async function known(offered = offers(), ...names) {
  const listing = new AListing(...(names.length ? names : ['python3', 'python3.gpu-0.25', 'torch']));
  const specs = new KnownSpecs(listing, async () => offered);
  await specs.ready;
  return specs;
}

test('a name is read by the pattern of the server', () => {
  const read = name => sizes.readName(name, offers());
  assert.deepEqual(read('python3.gpu-0.37-6g-low'), { base: 'python3', asked: asked(0.37, 6, 'low') });
  assert.deepEqual(read('Python3.GPU-2'), { base: 'Python3', asked: asked(2) });
  assert.equal(read('python3'), null);
  assert.equal(sizes.readName('python3.gpu-0.5', offers({ pattern: undefined })), null, 'an older gateway tells none');
  assert.deepEqual(sizes.readName('python3.gpu-1', offers({ pattern: undefined })).asked, asked(1), 'it lists presets');
});

test('a pattern that this browser cannot read recognises nothing', () => {
  assert.equal(sizes.readName('python3.gpu-0.5', offers({ pattern: '(' })), null);
});

test('a document has its preset selected, its custom size, or no GPU', () => {
  const choice = name => sizes.choiceFor(name, 'python3', offers());
  assert.equal(choice('python3.gpu-1').size.name, 'python3.gpu-1');
  assert.deepEqual(choice('python3.gpu-0.37'), { kind: 'custom', asked: asked(0.37) });
  assert.deepEqual(choice('python3'), { kind: 'plain' });
  assert.deepEqual(choice(null), { kind: 'plain' });
});

test('a server that has a default size starts that for a name without one, and no GPU is a name of its own', async () => {
  const offered = offers({ default_size: '0.5-8g-low' });
  const theDefault = asked(0.5, 8, 'low');
  const first = name => sizes.choiceFor(name, 'python3', offered);
  assert.deepEqual(sizes.defaultOf(offered), theDefault);
  assert.equal(sizes.defaultOf(offers()), null, 'an older server tells none');
  assert.deepEqual([first('python3'), first('python3.gpu-none')], [{ kind: 'plain' }, { kind: 'none' }]);
  assert.deepEqual(sizes.choiceFor('python3.gpu-none', 'python3', offers()), { kind: 'plain' });
  const requests = [];
  const choice = new SizeChoice(offered, async request => (requests.push(request), { outcome: 'starts' }), 0);
  choice.begin('python3', 'python3');
  assert.equal(await choice.kernelName(), 'python3');
  await new Promise(resolve => setTimeout(resolve, 5));
  const want = { gpus: 0.5, memory: 8 * GIB, priority: 'low' };
  assert.deepEqual(requests, [want], 'what it would mean is asked');
  choice.choose(sizes.noGpu(offered));
  assert.equal(await choice.kernelName(), 'python3.gpu-none');
  choice.moveTo({ base: 'torch', running: null });
  assert.equal(await choice.kernelName(), 'torch.gpu-none', 'on another base, too');
  await new Promise(resolve => setTimeout(resolve, 5));
  assert.deepEqual([requests.length, choice.dryRun], [1, null]);
  choice.propose('python3', null);
  assert.deepEqual(choice.choice, { kind: 'none' }, 'in the place of what cannot be had there is no GPU, and no default');
  choice.dispose();
});

test('a name that asks for no GPU is known by its base, and refused without it', async () => {
  const specs = await known();
  assert.equal(specs.specs.kernelspecs['python3.gpu-none'].display_name, 'python3 · no GPU');
  assert.deepEqual(['python3.gpu-none', 'python3.gpu-1', 'python3'].map(name => specs.base(name)), Array(3).fill('python3'));
  assert.equal(await refusalNow('python3.gpu-none', specs, {}), null);
  assert.deepEqual(specs.refusal('r.gpu-none'), { kind: 'no-base', base: 'r', asked: null });
  assert.equal(specs.refusal('python3.gpu-none-low').kind, 'unreadable');
});

test('a new document has the size that the catalogue proposes for its image', () => {
  const first = aSize('torch.gpu-0.5', { is_default: true });
  const offered = offers({ sizes: [first, aSize('torch.gpu-1')] });
  assert.equal(sizes.choiceFor(null, 'torch', offered).size.name, 'torch.gpu-0.5');
  assert.deepEqual(sizes.choiceFor('torch', 'torch', offered), { kind: 'plain' }, 'but not one that has none');
});

test('the rules refuse with the reason and the nearest that can be had', () => {
  const offered = offers({ may_use_normal_priority: false });
  const refusal = name => sizes.refusalOf(name, offered, base => base === 'python3');
  assert.equal(refusal('python3.gpu-4').kind, 'too-large');
  assert.equal(refusal('r.gpu-1').kind, 'no-base');
  assert.equal(refusal('python3.gpu-0.5').kind, 'priority');
  assert.equal(refusal('python3.gpu-abc').kind, 'unreadable');
  assert.equal(refusal('python3.gpu-0.5-low'), null);
  assert.equal(refusal('python3'), null);
  assert.deepEqual(sizes.nearest(asked(4, 100), offered), asked(2, 32, 'low'));
  assert.deepEqual(sizes.nearest(asked(0.371), offers()), asked(0.37));
});

test('a choice asks once after the hand rests, and drops what is no longer chosen', async () => {
  const questions = [];
  const choice = new SizeChoice(
    offers(),
    request => new Promise(answer => questions.push({ request, answer })),
    0
  );
  const settled = () => new Promise(resolve => setTimeout(resolve, 5));
  choice.begin('python3', null);
  choice.draft({ gpus: 0.3 });
  choice.draft({ gpus: 0.4 });
  await settled();
  assert.deepEqual(questions.map(one => one.request.gpus), [0.4]);
  choice.draft({ gpus: 0.5 });
  await settled();
  assert.equal(questions.length, 1, 'one at a time');
  questions[0].answer({ suffix: 'gpu-0.4' });
  await settled();
  assert.equal(choice.dryRun, null, 'stale');
  questions[1].answer({ suffix: 'gpu-0.5' });
  await settled();
  assert.equal(choice.dryRun.suffix, 'gpu-0.5');
  choice.dispose();
});

test('the same is asked again as others come and go, and its answer stays until then', async () => {
  const answers = [];
  const choice = new SizeChoice(offers(), () => new Promise(answer => answers.push(answer)), 0);
  const settled = () => new Promise(resolve => setTimeout(resolve, 5));
  choice.begin('python3', 'python3.gpu-1');
  choice.askAgain();
  await settled();
  assert.equal(answers.length, 1, 'the first answer is still to come');
  answers[0]({ outcome: 'queued' });
  await settled();
  choice.askAgain();
  await settled();
  assert.equal(choice.dryRun.outcome, 'queued');
  answers[1]({ outcome: 'starts' });
  await settled();
  assert.equal(choice.dryRun.outcome, 'starts');
  choice.dispose();
});

test('a custom size is named by the server, a preset by its list', async () => {
  const asks = [];
  const choice = new SizeChoice(offers(), async request => (asks.push(request), { suffix: 'gpu-0.37-6g' }), 1e6);
  choice.begin('python3', 'python3');
  assert.equal(await choice.kernelName(), 'python3');
  choice.choose({ kind: 'preset', size: offers().sizes[0] });
  assert.equal(await choice.kernelName(), 'python3.gpu-0.25');
  choice.draft({ gpus: 0.37, memoryGib: 6 });
  assert.equal(await choice.kernelName(), 'python3.gpu-0.37-6g');
  assert.equal(asks.length, 1);
  choice.dispose();
});

test('another base keeps what was chosen, and none takes it away', () => {
  const choice = new SizeChoice(offers(), async () => null, 1e6);
  choice.begin('python3', 'python3.gpu-0.25');
  choice.moveTo(null);
  choice.moveTo({ base: 'torch', running: null });
  assert.deepEqual(choice.choice, { kind: 'custom', asked: asked(0.25) }, 'no preset there');
  choice.moveTo({ base: 'python3', running: null });
  assert.equal(choice.choice.size.name, 'python3.gpu-0.25');
  choice.dispose();
});

test('the size of a kernel that runs is selected, and another is a change of it', async () => {
  const asks = [];
  const choice = new SizeChoice(offers(), async (request, id) => (asks.push([request.gpus, id]), null), 0);
  choice.begin('python3', 'python3.gpu-0.25');
  choice.moveTo({ base: 'python3', running: { id: 'k-1', has: asked(1) } });
  assert.equal(choice.choice.size.name, 'python3.gpu-1');
  assert.equal(choice.change, null);
  choice.draft({ gpus: 0.5 });
  assert.deepEqual(choice.change, { gpus: 0.5, memory: null, priority: 'normal' });
  await new Promise(resolve => setTimeout(resolve, 5));
  assert.deepEqual(asks, [[0.5, 'k-1']]);
  choice.moveTo({ base: 'torch', running: null });
  assert.equal(choice.change, null, 'that would be another kernel');
  choice.dispose();
});

test('a custom size is known by its name and never enumerated', async () => {
  const specs = await known();
  const spec = specs.specs.kernelspecs['python3.gpu-0.37-6g'];
  assert.equal(spec.display_name, 'python3 · 0.37 GPU · 6 GiB');
  assert.equal(spec.resources['logo-svg'], '/logo');
  assert.deepEqual(Object.keys(specs.specs.kernelspecs), ['python3', 'python3.gpu-0.25', 'torch']);
  assert.equal(specs.specs.kernelspecs['r.gpu-1'], undefined, 'its base is not listed');
});

test('a custom size is listed while Lab looks for what to start', async () => {
  const specs = await known();
  const names = () => Object.keys(specs.specs.kernelspecs);
  assert.ok(specs.listing('python3.gpu-0.37', names).includes('python3.gpu-0.37'));
  assert.ok(!names().includes('python3.gpu-0.37'));
});

test('without Aliquot the kernelspecs are the listed ones', async () => {
  const listing = new AListing('python3');
  const specs = new KnownSpecs(listing, () => Promise.reject(new Error('404')));
  await specs.ready;
  assert.equal(specs.specs, listing.specs);
  assert.equal(specs.refusal('python3.gpu-99'), null);
});

test('in the place of a size that does not fit, the nearest that does is proposed', async () => {
  const upTo = most => ({ dryRun: async request => ({ outcome: request.gpus <= most && !request.memory ? 'queued' : 'never' }) });
  const offered = offers({ largest_gpus: 8 });
  assert.deepEqual(await nearestNow(asked(4), offered, upTo(2)), asked(2));
  assert.deepEqual(await nearestNow(asked(1.5, 40), offered, upTo(2)), asked(1.5));
  assert.deepEqual(await nearestNow(asked(0.9), offered, upTo(0.3)), asked(0.25), 'a preset');
  assert.equal(await nearestNow(asked(1), offered, upTo(0)), null);
  const untold = { dryRun: () => Promise.reject(new Error('404')) };
  assert.deepEqual(await nearestNow(asked(9), offered, untold), asked(8));
});

test('a size that the server says never fits is refused with its words', async () => {
  const specs = await known();
  const client = dryRun => ({ dryRun: async () => dryRun });
  const never = await refusalNow('python3.gpu-0.5-15g', specs, client({ outcome: 'never', message: 'too much' }));
  assert.equal(never.message, 'too much');
  assert.equal(await refusalNow('python3.gpu-0.5', specs, client({ outcome: 'queued' })), null);
  assert.equal(await refusalNow('python3', specs, client({ outcome: 'never' })), null);
  const untold = { dryRun: () => Promise.reject(new Error('404')) };
  assert.equal(await refusalNow('python3.gpu-0.5', specs, untold), null);
  const tooLarge = await refusalNow('python3.gpu-9', specs, client({ outcome: 'never', message: 'the largest is 1 GPU' }));
  assert.deepEqual([tooLarge.kind, tooLarge.message], ['never', 'the largest is 1 GPU'], 'what the GPUs here can hold');
  assert.equal((await refusalNow('python3.gpu-9', specs, untold)).kind, 'too-large', 'by the rules alone');
});

test('a slider ends at what there is and what one may have, and at the rules where nobody tells', () => {
  const at = (count, gpus, most = 8) =>
    sizes.mostAtHand(offers({ largest_gpus: most }), { devices: Array(count).fill({}), user: { gpu_limit: { gpus } } });
  assert.deepEqual([at(1, null), at(64, null), at(2, 0.5), at(0, null), at(4, 0), at(4, null, 0.25)], [1, 8, 0.5, 8, 0.01, 0.25]);
  assert.equal(sizes.mostAtHand(offers({ largest_gpus: 8 }), null), 8);
});

test('a server that is slow to tell its sizes keeps nobody waiting who knows some', async () => {
  const told = [offers({ step: 0.01 })];
  const known = new KnownSpecs(new AListing('python3'), () => told.shift() ?? new Promise(() => undefined));
  await known.ready;
  assert.equal((await known.latestSizes(1)).step, 0.01);
  told.push(offers({ step: 0.05 }));
  assert.equal((await known.latestSizes(1)).step, 0.05);
  const away = new KnownSpecs(new AListing('python3'), () => Promise.reject(new Error('away')));
  assert.equal(await away.latestSizes(1), null);
});

test('a choice tells why nobody could say what it means, and asks again', async () => {
  const answers = [() => Promise.reject(new Error('it is away')), async () => ({ outcome: 'starts' })];
  const choice = new SizeChoice(offers(), () => answers.shift()(), 0);
  const told = () => new Promise(resolve => choice.changed.connect(function once() {
    if (choice.failure !== null || choice.dryRun !== null) {
      choice.changed.disconnect(once);
      resolve();
    }
  }));
  const first = told();
  choice.begin('python3', 'python3.gpu-0.37');
  await first;
  assert.equal(choice.failure.message, 'it is away');
  answers.unshift(async () => ({ outcome: 'starts' }));
  const second = new Promise(resolve => choice.changed.connect(resolve));
  choice.askAgain();
  await second;
  assert.deepEqual([choice.failure, choice.dryRun.outcome], [null, 'starts']);
  choice.dispose();
});

test('a number says what is wrong with it', () => {
  const of = (text, step = 0.01, range = { min: 0.01, max: 8 }) => problemOf(text, step, range);
  assert.deepEqual(['0.29', '0.57', '8', '0,5'].map(text => of(text)), [null, null, null, null]);
  assert.deepEqual(['', 'x', '1e999'].map(text => of(text)), ['no-number', 'no-number', 'no-number']);
  assert.deepEqual(['0', '-1', '8.01', '0.333'].map(text => of(text)), ['too-small', 'too-small', 'too-large', 'off-step']);
  assert.equal(of('1.5', 1, { min: 1, max: 16 }), 'off-step');
});

test('all cards of a target are asked in one question, again as others come and go, and never of an older server', async () => {
  const questions = [];
  let next = suffixes => suffixes.map(suffix => ({ suffix, outcome: 'starts' }));
  const ask = async (suffixes, id) => (questions.push([suffixes, id]), next(suffixes));
  const dryRuns = new SizeDryRuns(offers({ default_size: '0.5-8g' }), ask, 0);
  const settled = () => new Promise(resolve => setTimeout(resolve, 5));
  const torch = { base: 'torch', running: null };
  dryRuns.follow(torch);
  dryRuns.follow({ ...torch });
  assert.equal(dryRuns.of('gpu-1'), null);
  await settled();
  assert.deepEqual(questions, [[['gpu-1', 'gpu-0.5-8g'], undefined]]);
  assert.deepEqual(['gpu-1', 'gpu-0.5-8g'].map(one => dryRuns.of(one).outcome), ['starts', 'starts']);
  next = suffixes => suffixes.map(suffix => ({ suffix, outcome: 'queued' }));
  dryRuns.askAgain();
  assert.equal(dryRuns.of('gpu-1').outcome, 'starts', 'known words stay until the answer');
  await settled();
  assert.equal(dryRuns.of('gpu-1').outcome, 'queued');
  dryRuns.follow({ base: 'python3', running: { id: 'k1', has: asked(0.25) } });
  assert.equal(dryRuns.of('gpu-1'), null, 'of another target');
  await settled();
  assert.deepEqual(questions[2], [['gpu-0.25', 'gpu-1', 'gpu-0.25-low'], 'k1']);
  next = () => Promise.reject(new StatusError('not-installed', 'unknown'));
  dryRuns.askAgain();
  await settled();
  dryRuns.askAgain();
  await settled();
  assert.deepEqual([questions.length, dryRuns.of('gpu-1')], [4, null]);
  dryRuns.dispose();
});

test('a size says with whom it shares memory and how long its memory takes to come back, or that it keeps it', () => {
  const fill = (text, values) => values.reduce((said, value, index) => said.replace(`%${index + 1}`, value), text);
  const trans = {
    __: (text, ...values) => fill(text, values),
    _n: (one, many, count, ...values) => fill(count === 1 ? one : many, [count, ...values])
  };
  const told = (idle, busy, seconds, keeps = false) =>
    sharingText(
      {
        memory_sharing: idle + busy > 0 ? { idle_kernels: idle, busy_kernels: busy, restore_seconds: seconds } : null,
        keeps_memory: keeps
      },
      trans
    );
  assert.equal(told(2, 0, 1.2), 'shares memory with 2 idle kernels; about 1.2 s to restore');
  assert.equal(told(1, 0, 1.2), 'shares memory with 1 idle kernel; about 1.2 s to restore');
  assert.equal(told(0, 1, null), 'shares memory with 1 busy kernel');
  assert.equal(told(2, 1, 0.4), 'shares memory with 2 idle and 1 busy kernels; about 0.4 s to restore');
  assert.equal(told(0, 0, null), null);
  assert.equal(told(0, 0, null, true), 'keeps its memory on the GPU');
  assert.equal(sharingText({ outcome: 'starts' }, trans), null, 'an older server tells neither');
});
