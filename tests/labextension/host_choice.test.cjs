// CPUs, memory and folders beside a size, without a browser. Run by test_model.py.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { compiled } = require('./scripts.cjs');
const { HostChoice } = compiled('sizes/host_choice');
const { label, NO_HOST_PART, readName } = compiled('sizes/sizes');

const GIB = 2 ** 30;
const PATTERN =
  '^(?<kernelspec>[a-z0-9]+)\\.gpu-(?<gpus>[0-9.]+?)(?:-(?<memory_gib>[0-9]+)g)?(?:-(?<cpus>[0-9.]+)cpu)?' +
  '(?:-(?<ram_gib>[0-9]+)ram)?(?<low>-low)?(?<folders>(?:\\.with-[a-z0-9._-]+)?)$';

function options(changes = {}) {
  return { name: 'open.gpu-1-2cpu', cpus: null, ram_bytes: null, folders: null, chosen: { cpus: null, ram_bytes: null, folders: null }, ...changes };
}

function next(choice) {
  return new Promise(resolve => {
    const hear = () => {
      choice.changed.disconnect(hear);
      resolve();
    };
    choice.changed.connect(hear);
  });
}

test('a name is read with its CPUs, memory and folders, and its label has them', () => {
  const read = name => readName(name, { sizes: [], pattern: PATTERN });
  const { asked, host } = read('open.gpu-0.5-8g-1.5cpu-16ram-low.with-sets.with-a.b');
  assert.deepEqual(host, { cpus: 1.5, ramGib: 16, folders: ['sets', 'a.b'] });
  assert.equal(label(asked, host), '0.5 GPU · 8 GiB · 1.5 CPUs · 16 GiB RAM · low · with sets, a.b');
  assert.deepEqual(read('open.gpu-1.with-none').host, { ...NO_HOST_PART, folders: [] });
  assert.equal(read('open.gpu-1').host, undefined);
});

test('a choice that the server corrects is corrected here', async () => {
  const asked = [];
  const answer = options({ chosen: { cpus: 2, ram_bytes: 4 * GIB, folders: ['sets'] } });
  const choice = new HostChoice(async (...question) => (asked.push(question), answer), 0);
  choice.begin({ cpus: 64, ramGib: 512, folders: ['sets', 'gone'] });
  choice.follow('open.gpu-1');
  await next(choice);
  assert.deepEqual(asked, [['open.gpu-1', { cpus: 64, ramGib: 512, folders: ['sets', 'gone'] }]]);
  assert.deepEqual(choice.chosen, { cpus: 2, ramGib: 4, folders: ['sets'] });
  assert.equal(await choice.named('open.gpu-1'), 'open.gpu-1-2cpu', 'the server names it');
  choice.dispose();
});

test('without a choice the size keeps its name, and a server without options is asked nothing more', async () => {
  let requests = 0;
  const choice = new HostChoice(async () => (requests++, Promise.reject(new Error('404'))), 0);
  choice.follow('open.gpu-1');
  await next(choice);
  assert.equal(choice.options, null);
  assert.equal(await choice.named('open.gpu-1'), 'open.gpu-1');
  assert.equal(requests, 1);
  choice.dispose();
});

test('a choice that is made while the server answers for a new size is kept, and corrected by the next answer', async () => {
  const asked = [];
  const answer = ({ cpus }) => options({ chosen: { cpus: cpus && Math.min(cpus, 4), ram_bytes: null, folders: null } });
  const choice = new HostChoice(async (_, chosen) => {
    asked.push(chosen.cpus);
    if (asked.length === 1) {
      choice.choose({ cpus: 8 });
    }
    return answer(chosen);
  }, 0);
  choice.follow('open.gpu-1');
  for (let changes = 0; changes < 3; changes++) {
    await next(choice);
  }
  assert.deepEqual([asked, choice.chosen.cpus], [[null, 8], 4]);
  choice.dispose();
});

test('a request that failed is told, and repeated for the same size', async () => {
  let requests = 0;
  const choice = new HostChoice(async () => (++requests === 1 ? Promise.reject(new Error('503')) : options()), 0);
  choice.begin({ cpus: 2, ramGib: null, folders: null });
  choice.follow('open.gpu-1');
  await next(choice);
  assert.deepEqual([choice.failure.message, choice.options, choice.chosen.cpus], ['503', null, 2]);
  choice.follow('open.gpu-1');
  await next(choice);
  assert.deepEqual([choice.failure, choice.chosen.cpus, requests], [null, null, 2]);
  choice.follow('open.gpu-1');
  assert.equal(requests, 2);
  choice.dispose();
});
