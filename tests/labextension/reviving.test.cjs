// The time when a page connects its kernels again. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { compiled } = require('./scripts.cjs');
const { Revival, revive } = compiled('sessions/reviving');

test('a server or gateway that was away is back once, when it answers again or changes are heard again', () => {
  const told = [
    [false, false, false], // nothing was answered yet
    [true, false, true],
    [true, true, true], // a gateway that was away so shortly that no request met it
    [true, true, false],
    [true, false, false],
    [false, false, false],
    [false, true, false], // events arrive, but it does not answer requests yet
    [true, true, true],
    [true, true, false]
  ];
  const revival = new Revival();
  told.forEach(([isAnswered, isLive, want], step) => {
    assert.equal(revival.isBack(isAnswered, isLive), want, `step ${step}`);
  });
});

test('what is not connected is connected again, and a connection that holds is left alone', async () => {
  const tried = [];
  const aConnection = (connectionStatus, isDisposed = false) => ({
    connectionStatus,
    isDisposed,
    reconnect: async () => {
      tried.push(connectionStatus);
      throw new Error('not yet');
    }
  });
  const all = [aConnection('connected'), aConnection('connecting'), aConnection('disconnected'), aConnection('disconnected', true)];
  const unanswered = async () => {
    throw new Error('away again');
  };
  await revive(() => all, unanswered);
  assert.deepEqual(tried, ['connecting', 'disconnected']);
  await new Promise(setImmediate); // a failed try is no error of the page
});

test('a kernel that is gone is tried no more: the list of kernels comes first', async () => {
  const tried = [];
  const gone = { connectionStatus: 'connecting', isDisposed: false, reconnect: async () => void tried.push('gone') };
  await revive(
    () => [gone],
    async () => void (gone.isDisposed = true)
  );
  assert.deepEqual(tried, []);
});
