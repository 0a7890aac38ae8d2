// The client against answers that fail half-way, without a browser. Run by test_model.py.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const { AliquotClient } = require(path.join(process.env.ALIQUOT_COMPILED, 'client/client.js'));
const { readStatus } = require(path.join(process.env.ALIQUOT_COMPILED, 'model/status_form.js'));

const turn = () => new Promise(setImmediate);

/** A translation that marks the bounds of its sentences. */
const TRANS = { __: (text, ...values) => `«${values.reduce((all, one, at) => all.replace(`%${at + 1}`, one), text)}»` };

/** Returns a client of a server that gives this answer to each request. */
function aClient(answer) {
  const settings = { baseUrl: 'http://server/', token: '', init: {}, Request, Headers };
  return new AliquotClient({ ...settings, fetch: async request => answer(request) }, TRANS);
}

test('an answer that begins and never ends is given up, so that the next request can be made', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const client = aClient(
    request =>
      new Response(
        new ReadableStream({
          start: stream => request.signal.addEventListener('abort', () => stream.error(new Error('aborted')))
        })
      )
  );
  const asked = client.fetchText();
  asked.catch(() => undefined);
  await turn();
  await turn();
  t.mock.timers.tick(60000);
  await assert.rejects(asked, { kind: 'unreachable', message: '«The server does not answer: aborted»' });
});

test('a page of somebody else in the place of an answer is a failure, and no answer', async () => {
  const client = aClient(() => new Response('<html>Log in</html>', { status: 200 }));
  const message = '«The server sent an answer that cannot be read. Reload the page.»';
  await assert.rejects(client.sizes(), { kind: 'server', message });
  await assert.rejects(client.dryRun({ gpus: 1 }), { kind: 'server' });
  await assert.rejects(aClient(() => new Response('{}')).sizes(), { kind: 'server' });
});

test('a refusal is told in the words of the server, and an empty answer is none', async () => {
  const no = new Response(JSON.stringify({ message: 'over your quota' }), { status: 409 });
  await assert.rejects(aClient(() => no).restore('k'), { kind: 'server', message: 'over your quota' });
  await assert.rejects(aClient(() => new Response('', { status: 404 })).sizes(), { kind: 'not-installed' });
  assert.equal(await aClient(() => new Response(null, { status: 204 })).restore('k'), undefined);
});

test('an answer of an unknown form is told in the language of the page', () => {
  const message = /^«The answer of .* differ in version\.»$/;
  assert.throws(() => readStatus('{}', TRANS), { kind: 'server', message });
});
