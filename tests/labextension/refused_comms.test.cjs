// The page's notice of a widget's refused message. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { compiled } = require('./scripts.cjs');
const { RefusedComms } = compiled('sessions/refused_comms');

const anError = (asked = 'comm_msg', ename = 'KernelNotResponding', kind = 'error') => ({
  header: { msg_type: kind },
  parent_header: asked === null ? {} : { msg_type: asked },
  content: { ename }
});

test('a comm message that was refused is told once in a minute for each kernel', () => {
  const refused = new RefusedComms();
  assert.equal(refused.hear('k-1', anError(), 1000), true);
  assert.equal(refused.hear('k-1', anError('comm_open'), 60999), false);
  assert.equal(refused.hear('k-2', anError('comm_open'), 2000), true);
  assert.equal(refused.hear('k-1', anError('comm_close'), 61000), true);
});

test('what has a place of its own in the notebook, and what is no refusal, is told there', () => {
  const refused = new RefusedComms();
  const others = [
    anError('execute_request'), // its cell shows it
    anError('execute_request', 'CellNotRun'),
    anError(null),
    anError('comm_msg', 'ValueError'),
    anError('comm_msg', 'ReadOnlyKernel'),
    anError('comm_msg', 'KernelNotResponding', 'display_data'),
    { header: { msg_type: 'status' }, parent_header: { msg_type: 'comm_msg' }, content: { execution_state: 'idle' } }
  ];
  assert.deepEqual(others.map(message => refused.hear('k-1', message, 0)), others.map(() => false));
});
