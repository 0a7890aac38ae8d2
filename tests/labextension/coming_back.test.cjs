// A page that comes back, and its view of cells, without a browser. Run by test_model.py on
// compiled sources.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const compiled = process.env.ALIQUOT_COMPILED;
const { ComingBack, Seen, match } = require(path.join(compiled, 'sessions/coming_back.js'));
const { attachment } = require(path.join(compiled, 'sessions/attachment.js'));

let number = 0;

function said(parent, msg_type, content, id = `k_1_${(number += 1)}`) {
  return { header: { msg_id: id, msg_type }, parent_header: { msg_id: parent }, metadata: {}, content };
}
const stream = (parent, text, id) => said(parent, 'stream', { name: 'stdout', text }, id);
const input = (parent, execution_count = 1, code = 'x') => said(parent, 'execute_input', { execution_count, code });
const idle = parent => said(parent, 'status', { execution_state: 'idle' });

function aRun(msg_id, messages = [], changes = {}) {
  const began = '2026-01-01T00:00:00Z';
  const told = { msg_id, cell_id: `cell-${msg_id}`, began, ended: null, is_open: true, input: null };
  return { ...told, omitted_messages: 0, messages, ...changes };
}

function anAnswer(...cells) {
  const ids = cells.flatMap(cell => cell.messages.map(message => message.header.msg_id));
  return { is_own: true, cells, seen: { ranges: {}, ids } };
}

function aCell(id, changes = {}) {
  return { id, code: 'x', hasOutput: false, executionCount: null, ...changes };
}

function aNotebook(ids, changes = {}) {
  return { cells: ids.map(id => aCell(id)), savedAt: 0, hasLastingIds: true, ...changes };
}

/** Records the changes of each cell. */
class AStage {
  told = [];
  busy = new Set();

  take(cell, run, isTrusted) {
    this.told.push(`${cell} taken${isTrusted ? '' : ' without trust'}`);
    return !this.busy.has(cell);
  }
  show(cell, { header, content }) {
    this.told.push(`${cell} ${content.text ?? header.msg_type}`);
  }
  remark(cell, { kind, messages }) {
    this.told.push(`${cell} ${kind}${messages === undefined ? '' : ` ${messages}`}`);
  }
  ask(cell, { prompt }) {
    this.told.push(`${cell} asks ${prompt}`);
  }
  settle(cell, count) {
    this.told.push(`${cell} over ${count}`);
  }
}

function comeBack(answer, notebook, before = []) {
  const stage = new AStage();
  const story = new ComingBack(stage);
  before.forEach(message => story.hear(message));
  story.begin(answer, notebook);
  return { stage, story };
}

test('a cell shows what was kept, then what comes, and is over with its count', () => {
  const { stage, story } = comeBack(anAnswer(aRun('a', [input('a', 4), stream('a', 'kept')])), aNotebook(['cell-a']));
  assert.equal(story.isWaiting, true);
  story.hear(stream('a', 'live'));
  story.hear(stream('other', 'not here'));
  story.hear(idle('a'));
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a kept', 'cell-a live', 'cell-a over 4']);
  assert.equal(story.isWaiting, false);
});

test('what the kernel of somebody else showed is not trusted', () => {
  const kept = anAnswer(aRun('a', [input('a'), stream('a', 'kept')]));
  const { stage } = comeBack({ ...kept, is_own: false }, aNotebook(['cell-a']));
  assert.deepEqual(stage.told, ['cell-a taken without trust', 'cell-a kept']);
});

test('what came while the answer was under way is shown once, and in its place', () => {
  const kept = stream('a', 'both');
  const before = [kept, stream('a', 'after the answer')];
  const { stage, story } = comeBack(anAnswer(aRun('a', [input('a'), kept])), aNotebook(['cell-a']), before);
  story.hear(kept);
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a both', 'cell-a after the answer']);
});

test('messages that were joined or given up are known by their numbers', () => {
  const seen = new Seen({ ranges: { 'k_1_': [[3, 5], [9, 9]] }, ids: ['named'] });
  const known = ['k_1_3', 'k_1_5', 'k_1_9', 'named', 'k_1_2', 'k_1_8', 'k_2_4', 'other', 'k_1_'].map(id => seen.has(id));
  assert.deepEqual(known, [true, true, true, true, false, false, false, false, false]);
});

test('what was not kept is said before what was', () => {
  const run = aRun('a', [input('a'), stream('a', 'end')], { omitted_messages: 312 });
  const { stage } = comeBack(anAnswer(run), aNotebook(['cell-a']));
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a omitted 312', 'cell-a end']);
});

test('a cell of which nothing is known lacks nothing when its beginning comes', () => {
  const run = aRun('a', [], { omitted_messages: 1 });
  const { stage, story } = comeBack(anAnswer(run), aNotebook(['cell-a']));
  story.hear(input('a'));
  story.hear(stream('a', 'first'));
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a first']);
  const other = comeBack(anAnswer(run), aNotebook(['cell-a']));
  other.story.hear(stream('a', 'later'));
  assert.deepEqual(other.stage.told, ['cell-a taken', 'cell-a omitted 1', 'cell-a later']);
});

test('a cell that ended while nobody was there is over at once', () => {
  const run = aRun('a', [input('a', 7), stream('a', 'all')], { is_open: false, ended: '2026-01-01T00:00:05Z' });
  const { stage } = comeBack(anAnswer(run), aNotebook(['cell-a']));
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a all', 'cell-a over 7']);
});

test('an ended cell is left as it was saved', () => {
  const ended = { is_open: false, ended: '2026-01-01T00:00:05Z' };
  const run = aRun('a', [input('a', 7), stream('a', 'all')], ended);
  const savedAt = Date.parse('2026-01-01T00:00:06Z');
  assert.equal(match([run], aNotebook(['cell-a'], { savedAt })).length, 0, 'it was saved after its end');
  const cells = [aCell('cell-a', { executionCount: 7, hasOutput: true })];
  assert.equal(match([run], aNotebook([], { cells })).length, 0, 'it has its count');
  const lost = aRun('a', [input('a', 8)], { ...ended, omitted_messages: 5 });
  assert.equal(match([lost], aNotebook([], { cells })).length, 0, 'the file has more than was kept');
  assert.equal(match([{ ...run, is_open: true, ended: null }], aNotebook(['cell-a'], { savedAt })).length, 1);
});

test('cells that the notebook does not have are left alone, and of one cell the last run counts', () => {
  const runs = [aRun('a', [], { cell_id: 'one' }), aRun('b', [], { cell_id: 'one' }), aRun('c', [], { cell_id: null })];
  assert.deepEqual(
    match(runs, aNotebook(['one'])).map(([run, cell]) => [run.msg_id, cell.id]),
    [['b', 'one']]
  );
});

test('a notebook whose cells have no lasting ids finds them by their code', () => {
  const runs = [aRun('a', [input('a', 1, 'train()')]), aRun('b', [input('b', 2, 'twice')])];
  const cells = [aCell('n1', { code: 'train()' }), aCell('n2', { code: 'twice' }), aCell('n3', { code: 'twice' })];
  const found = match(runs, aNotebook([], { cells, hasLastingIds: false }));
  assert.deepEqual(found.map(([run, cell]) => [run.msg_id, cell.id]), [['a', 'n1']]);
  assert.equal(match(runs, aNotebook([], { cells })).length, 0);
});

test('a cell that runs something newer is not touched', () => {
  const stage = new AStage();
  stage.busy.add('cell-a');
  const story = new ComingBack(stage);
  story.begin(anAnswer(aRun('a', [stream('a', 'old')]), aRun('b')), aNotebook(['cell-a', 'cell-b']));
  story.leave('b');
  story.hear(stream('b', 'late'));
  story.hear(stream('a', 'late'));
  story.end();
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-b taken']);
  assert.equal(story.isEmpty, true);
});

test('an update reaches every cell that shows the display', () => {
  const transient = { display_id: 'bar' };
  const { stage, story } = comeBack(anAnswer(aRun('a'), aRun('b')), aNotebook(['cell-a', 'cell-b']));
  stage.told.length = 0;
  story.hear(said('a', 'display_data', { transient }));
  story.hear(said('elsewhere', 'update_display_data', { transient }));
  assert.deepEqual(stage.told, [
    'cell-b update_display_data',
    'cell-a display_data',
    'cell-a update_display_data',
    'cell-b update_display_data'
  ]);
});

test('code that the cell no longer has is said to be so, and questions are asked again', () => {
  const question = { prompt: 'name? ', password: false };
  const { stage } = comeBack(anAnswer(aRun('a', [input('a', 1, 'was')], { input: question })), aNotebook(['cell-a']));
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a other-code', 'cell-a asks name? ']);
});

test('of a cell that waited for its kernel it is said once that its code is another one now', () => {
  const waiting = anAnswer(aRun('a', [input('a', null, 'was')]));
  const { stage, story } = comeBack(waiting, aNotebook(['cell-a']));
  story.hear(input('a', 1, 'was'));
  story.hear(stream('a', 'ran'));
  story.hear(idle('a'));
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a other-code', 'cell-a ran', 'cell-a over 1']);
});

test('a later question is asked once, and an end that was missed is told', () => {
  const { stage, story } = comeBack(anAnswer(aRun('a', [input('a', 1)])), aNotebook(['cell-a']));
  const asking = aRun('a', [], { input: { prompt: 'again? ', password: false } });
  story.look([asking]);
  story.look([asking]);
  const before = story.moment;
  story.hear(stream('a', 'thanks'));
  assert.notEqual(story.moment, before, 'an answer from before this message is stale');
  story.look([asking]);
  story.look([aRun('a', [], { is_open: false })]);
  story.look([]);
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a asks again? ', 'cell-a thanks', 'cell-a asks again? ', 'cell-a over 1']);
});

test('a question is shown once, whatever comes late, and one that asks the same is another', () => {
  const { stage, story } = comeBack(anAnswer(aRun('a', [input('a', 1)])), aNotebook(['cell-a']));
  const asking = id => aRun('a', [], { input: { prompt: 'name? ', password: false, id } });
  story.look([asking('k_1_7')]);
  story.hear(stream('a', 'of before the question'));
  story.look([asking('k_1_7')]);
  story.look([asking('k_1_8')]);
  story.look([asking('k_1_8')]);
  const asks = 'cell-a asks name? ';
  assert.deepEqual(stage.told, ['cell-a taken', asks, 'cell-a of before the question', asks]);
});

test('a cell whose end is told before its last output came is over when that is shown', () => {
  const { stage, story } = comeBack(anAnswer(aRun('a', [input('a', 3)])), aNotebook(['cell-a']));
  story.look([aRun('a', [], { is_open: false })]);
  story.hear(stream('a', 'late'));
  story.look([aRun('a', [], { is_open: false })]);
  story.hear(idle('a'));
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a late', 'cell-a over 3']);
});

test('the end of the kernel is the end of all runs', () => {
  const { stage, story } = comeBack(anAnswer(aRun('a', [input('a', 2)])), aNotebook(['cell-a']));
  story.end();
  assert.deepEqual(stage.told, ['cell-a taken', 'cell-a over 2']);
});

test('a cell is sent when its kernel is there, waits for one that comes, and for no other', () => {
  const kernel = { status: 'idle', connectionStatus: 'connected' };
  const context = { isTerminating: false, isRestarting: false, kernelDisplayStatus: 'idle', session: { kernel } };
  const noKernel = { ...context, session: null };
  const state = changes => attachment({ ...context, ...changes });
  assert.equal(state({}), 'here');
  assert.equal(state({ session: { kernel: { status: 'starting', connectionStatus: 'connected' } }, kernelDisplayStatus: 'starting' }), 'here');
  assert.equal(state({ session: { kernel: { status: 'unknown', connectionStatus: 'connecting' } }, kernelDisplayStatus: 'connecting' }), 'here');
  assert.equal(state({ kernelDisplayStatus: 'starting' }), 'coming', 'another kernel takes its place');
  assert.equal(state({ isRestarting: true, kernelDisplayStatus: 'restarting' }), 'coming');
  assert.equal(attachment({ ...noKernel, kernelDisplayStatus: 'initializing' }), 'coming');
  assert.equal(attachment({ ...noKernel, kernelDisplayStatus: 'unknown' }), 'none');
  assert.equal(state({ isTerminating: true }), 'none');
});
