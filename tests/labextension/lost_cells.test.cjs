// The cells that a page asks about after it lost its connection. Run by test_model.py on compiled
// sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { compiled } = require('./scripts.cjs');
const { SentCells } = compiled('sessions/lost_cells');

const UP = true;
const DOWN = false;

/** A page whose connection is open, and whose kernel is known. */
function aPage() {
  const sent = new SentCells();
  sent.connect();
  return sent;
}

test('a cell of which nothing was heard is doubtful once the connection is another', () => {
  const sent = aPage();
  sent.send('ran', true, UP);
  sent.hear('ran');
  sent.send('lost', true, UP);
  assert.deepEqual(sent.doubtful, []);
  sent.connect();
  assert.deepEqual(sent.doubtful, ['lost']);
  sent.settle(['lost']);
  assert.deepEqual(sent.doubtful, []);
});

test('a cell that was run while the connection was away waits in the page, and is not doubtful', () => {
  const sent = aPage();
  sent.send('kept', true, DOWN);
  sent.connect();
  assert.deepEqual(sent.doubtful, []);
  sent.connect(); // the connection was lost again before the cell left
  assert.deepEqual(sent.doubtful, []);
});

test('what is sent behind a cell that waits in the page waits too', () => {
  const sent = aPage();
  sent.send('kept', true, DOWN);
  sent.send('info', false, UP);
  sent.send('behind', true, UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, []);
});

test('the answer to a later question tells that earlier cells have left the page', () => {
  const sent = aPage();
  sent.send('kept', true, DOWN);
  sent.connect();
  sent.send('info', false, UP);
  sent.send('new', true, UP);
  sent.hear('info');
  assert.deepEqual(sent.doubtful, ['kept'], 'it left over this connection or one before: the gateway knows');
  sent.hear('new');
  assert.deepEqual(sent.doubtful, ['kept']);
});

test('what the kernel shows of a cell ends the doubt, and a restart ends all', () => {
  const sent = aPage();
  sent.send('a', true, UP);
  sent.send('b', true, UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, ['a', 'b']);
  sent.hear('a');
  assert.deepEqual(sent.doubtful, ['b']);
  sent.hear('of another page');
  sent.clear();
  assert.deepEqual(sent.doubtful, []);
});
