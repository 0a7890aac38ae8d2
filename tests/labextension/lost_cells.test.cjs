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
  sent.send('ran', UP);
  sent.hear('ran');
  sent.send('lost', UP);
  assert.deepEqual(sent.doubtful, []);
  sent.connect();
  assert.deepEqual(sent.doubtful, ['lost']);
  sent.settle(['lost']);
  assert.deepEqual(sent.doubtful, []);
});

test('a cell that was run while the connection was away waits in the page, and is not doubtful', () => {
  const sent = aPage();
  sent.send('kept', DOWN);
  sent.connect();
  assert.deepEqual(sent.doubtful, []);
  sent.connect(); // the connection was lost again before the cell left
  assert.deepEqual(sent.doubtful, []);
});

test('what is sent behind a cell that waits in the page waits too', () => {
  const sent = aPage();
  sent.send('kept', DOWN);
  sent.send('behind', UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, []);
});

test('the answer to a later cell shows that earlier cells have left the page', () => {
  const sent = aPage();
  sent.send('kept', DOWN);
  sent.connect();
  sent.send('new', UP);
  sent.hear('new');
  assert.deepEqual(sent.doubtful, ['kept'], 'it left over this connection or one before: the gateway knows');
});

test('the answer to another request shows nothing of cells that Lab has queued', () => {
  const sent = new SentCells();
  sent.send('run while the kernel starts', DOWN);
  sent.connect();
  assert.equal(sent.hear('kernel_info_request, which Lab sends past its queue'), false);
  assert.deepEqual(sent.doubtful, []);
});

test('what the kernel shows of a cell ends the doubt, and a restart ends all', () => {
  const sent = aPage();
  sent.send('a', UP);
  sent.send('b', UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, ['a', 'b']);
  sent.hear('a');
  assert.deepEqual(sent.doubtful, ['b']);
  sent.hear('of another page');
  sent.clear();
  assert.deepEqual(sent.doubtful, []);
});
