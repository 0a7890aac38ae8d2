// Another name for a kernel that is open in the page, without a browser. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const { renamed } = require(path.join(process.env.ALIQUOT_COMPILED, 'sessions/kernel_names.js'));

const SPECS = { specs: { kernelspecs: { 'python3.gpu-0.5': { name: 'python3.gpu-0.5' } } } };

function aContext(heard) {
  const kernel = { name: 'python3.gpu-0.25', status: 'busy' };
  const signal = name => ({ emit: args => heard.push([name, args]) });
  return {
    session: { kernel },
    kernelPreference: { shouldStart: true },
    kernelChanged: signal('kernelChanged'),
    statusChanged: signal('statusChanged')
  };
}

test('a console hears of no other kernel when its kernel has another name: it would clear its cells', async () => {
  const heard = [];
  const context = aContext(heard);
  assert.equal(renamed(context, 'python3.gpu-0.5', SPECS, false), true);
  assert.equal(context.session.kernel.name, 'python3.gpu-0.5');
  assert.equal((await context.session.kernel.spec).name, 'python3.gpu-0.5');
  assert.deepEqual(context.kernelPreference, { shouldStart: true, name: 'python3.gpu-0.5' });
  assert.deepEqual(heard, [['statusChanged', 'busy']]);
});

test('a notebook hears once that its kernel is the same and has another name', () => {
  const heard = [];
  const context = aContext(heard);
  assert.equal(renamed(context, 'python3.gpu-0.5', SPECS, true), true);
  assert.equal(renamed(context, 'python3.gpu-0.5', SPECS, true), false);
  const { kernel } = context.session;
  assert.deepEqual(heard[0], ['kernelChanged', { name: 'kernel', oldValue: kernel, newValue: kernel }]);
  assert.equal(heard.length, 2);
});
