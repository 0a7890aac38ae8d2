// The websocket of events, before scripted sockets and a scripted clock. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { AClock, anEvent, compiled, turn } = require('./scripts.cjs');
const { EventStream } = compiled('client/stream');

function aStream(changes = {}) {
  const sockets = [];
  class ASocket {
    constructor(url) {
      this.url = url;
      sockets.push(this);
    }
    close() {
      this.isClosed = true;
    }
    end(code) {
      this.onclose?.({ code });
    }
    say(event) {
      this.onmessage?.({ data: typeof event === 'string' ? event : JSON.stringify(event) });
    }
  }
  const clock = new AClock();
  const settings = { wsUrl: 'ws://here/base/', token: 'a b', appendToken: true, WebSocket: ASocket, ...changes };
  return { stream: new EventStream(settings, clock), sockets, clock };
}

const nothing = async () => undefined;

test('it is opened where Lab opens its sockets, with the token where Lab appends it', () => {
  const { stream, sockets } = aStream();
  stream.open(nothing);
  stream.open(nothing);
  assert.deepEqual(sockets.map(socket => socket.url), ['ws://here/base/aliquot/api/v1/events?token=a%20b']);
  const plain = aStream({ appendToken: false });
  plain.stream.open(nothing);
  assert.equal(plain.sockets[0].url, 'ws://here/base/aliquot/api/v1/events');
});

test('it is live from the handshake until the end, and passes on what it can read', () => {
  const { stream, sockets } = aStream();
  const turns = [];
  const heard = [];
  stream.liveChanged.connect((_, isLive) => turns.push(isLive));
  stream.received.connect((_, event) => heard.push(event.kernel_id));
  stream.open(nothing);
  assert.equal(stream.isLive, false);
  sockets[0].onopen();
  for (const said of [anEvent('k1'), 'no JSON', '7', '{"kind": "state"}', anEvent('k2')]) {
    sockets[0].say(said);
  }
  sockets[0].end(1006);
  assert.deepEqual(turns, [true, false]);
  assert.deepEqual(heard, ['k1', 'k2']);
});

test('the pauses between failures double up to two minutes, and a connection that held begins anew', () => {
  const { stream, sockets, clock } = aStream();
  stream.open(nothing);
  const pauses = [];
  for (let i = 0; i < 9; i++) {
    sockets.at(-1).end(1006);
    pauses.push(clock.next);
    clock.pass(clock.next);
    assert.equal(sockets.length, i + 2);
  }
  assert.deepEqual(pauses.map(pause => pause / 750), [1, 2, 4, 8, 16, 32, 64, 120, 120]);
  sockets.at(-1).onopen();
  clock.pass(10000);
  sockets.at(-1).end(1006);
  assert.equal(clock.next, 750);
});

test('a server that asks for it gets the status read before the stream is opened again', async () => {
  const { stream, sockets, clock } = aStream();
  const read = [];
  stream.open(() => new Promise(resolve => read.push(resolve)));
  sockets[0].onopen();
  sockets[0].end(1013);
  await turn();
  assert.deepEqual([read.length, clock.next], [1, null]);
  read[0]();
  await turn();
  clock.pass(clock.next);
  assert.equal(sockets.length, 2);
});

test('a stream that is closed stays closed, whatever was under way', async () => {
  const { stream, sockets, clock } = aStream();
  let read;
  stream.open(() => new Promise(resolve => (read = resolve)));
  sockets[0].end(1013);
  stream.close();
  read();
  await turn();
  assert.equal(clock.next, null);
  stream.reconnect();
  assert.equal(sockets.length, 1);
  stream.open(nothing);
  sockets[1].end(1006);
  stream.close();
  assert.equal(clock.next, null);
});

test('a connection that nobody trusts any more is replaced at once, and a silent handshake given up', () => {
  const { stream, sockets, clock } = aStream();
  stream.open(nothing);
  sockets[0].onopen();
  stream.reconnect();
  assert.deepEqual([sockets[0].isClosed, sockets.length, stream.isLive], [true, 2, false]);
  clock.pass(15000);
  assert.equal(sockets[1].isClosed, true);
  clock.pass(clock.next);
  assert.equal(sockets.length, 3);
});
