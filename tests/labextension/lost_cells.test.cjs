// The cells that a page asks about after it lost its connection. Run by test_model.py on compiled
// sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { compiled } = require('./scripts.cjs');
const { SentCells } = compiled('sessions/lost_cells');

const UP = true;
const DOWN = false;

const cell = msg_id => ({ msg_id, msg_type: 'execute_request' });
const slider = msg_id => ({ msg_id, msg_type: 'comm_msg' });
/** Any message of the kernel whose type does not matter. */
const BUSY = { msg_id: 'any', msg_type: 'status' };
const KNOWN = { msg_id: 'any', msg_type: 'kernel_info_reply' };

/** A page whose connection is open, and whose kernel is known and has answered. */
function aPage() {
  const sent = new SentCells(true);
  sent.connect();
  return sent;
}

test('a cell of which nothing was heard is doubtful once the connection is another', () => {
  const sent = aPage();
  sent.send(cell('ran'), UP);
  sent.hear(BUSY, 'ran');
  sent.send(cell('lost'), UP);
  assert.deepEqual(sent.doubtful, []);
  sent.connect();
  assert.deepEqual(sent.doubtful, ['lost']);
  sent.settle(['lost']);
  assert.deepEqual(sent.doubtful, []);
});

test('a cell that was run while the connection was away waits in the page, and is not doubtful', () => {
  const sent = aPage();
  sent.send(cell('kept'), DOWN);
  sent.connect();
  assert.deepEqual(sent.doubtful, []);
  sent.connect(); // the connection was lost again before the cell left
  assert.deepEqual(sent.doubtful, []);
});

test('what is sent behind a cell that waits in the page waits too', () => {
  const sent = aPage();
  sent.send(cell('kept'), DOWN);
  sent.send(cell('behind'), UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, []);
});

test('a cell behind another message that waits in the page waits too, and is not doubtful', () => {
  const sent = aPage();
  sent.send(slider('moved while the connection is away'), DOWN);
  sent.connect();
  sent.send(cell('behind'), UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, [], 'Lab has it still, and sends it later');
});

test('the answer to another message shows that earlier cells have left, and that none waits', () => {
  const sent = aPage();
  sent.send(cell('kept'), DOWN);
  sent.send(slider('moved'), DOWN);
  sent.connect();
  assert.equal(sent.hear(BUSY, 'moved'), true);
  assert.deepEqual(sent.doubtful, ['kept']);
  sent.send(cell('lost'), UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, ['kept', 'lost']);
});

test('before the kernel has answered a kernel_info_request, a cell may wait behind an unseen message', () => {
  const sent = new SentCells();
  sent.connect();
  sent.send(cell('early'), UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, []);
  sent.clear();
  sent.hear(KNOWN, '');
  sent.send(cell('lost'), UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, ['lost']);
  sent.clear(); // a restart
  sent.send(cell('queued until the restart is over'), UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, []);
});

test('the answer to a later cell shows that earlier cells have left the page', () => {
  const sent = aPage();
  sent.send(cell('kept'), DOWN);
  sent.connect();
  sent.send(cell('new'), UP);
  sent.hear(BUSY, 'new');
  assert.deepEqual(sent.doubtful, ['kept'], 'it left over this connection or one before: the gateway knows');
});

test('the answer to another request shows nothing of cells that Lab has queued', () => {
  const sent = new SentCells();
  sent.send(cell('run while the kernel starts'), DOWN);
  sent.connect();
  assert.equal(sent.hear(BUSY, 'kernel_info_request, which Lab sends past its queue'), false);
  assert.deepEqual(sent.doubtful, []);
});

test('what the kernel shows of a cell ends the doubt, and a restart ends all', () => {
  const sent = aPage();
  sent.send(cell('a'), UP);
  sent.send(cell('b'), UP);
  sent.connect();
  assert.deepEqual(sent.doubtful, ['a', 'b']);
  sent.hear(BUSY, 'a');
  assert.deepEqual(sent.doubtful, ['b']);
  sent.hear(BUSY, 'of another page');
  sent.clear();
  assert.deepEqual(sent.doubtful, []);
});

test('cells that wait in the page are not run if the connection ends', () => {
  const sent = aPage();
  sent.send(cell('sent'), UP);
  sent.send(slider('moved'), DOWN);
  sent.send(cell('kept'), DOWN);
  sent.send(cell('behind'), UP);
  assert.deepEqual(sent.waiting, ['kept', 'behind']);
  sent.connect();
  assert.deepEqual(sent.waiting, ['kept', 'behind'], 'Lab sends them now, or has not yet');
  sent.hear(BUSY, 'kept');
  assert.deepEqual(sent.waiting, ['behind']);
});
