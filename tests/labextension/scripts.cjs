// Shared parts of the tests of the browser's modules: a server's answers, a source that gives them,
// a memory.

'use strict';

const path = require('node:path');

const { Signal } = require(path.join(process.env.ALIQUOT_COMPILED, 'node_modules/@lumino/signaling'));

/** A module of labextension/src, as test_model.py compiled it. */
const compiled = name => require(path.join(process.env.ALIQUOT_COMPILED, `${name}.js`));
const { GpuKernelsModel } = compiled('model/model');

const GIB = 2 ** 30;

function aStatus(changes = {}) {
  return {
    version: '0.1.0',
    user: { name: 'ada', role: 'user' },
    node: { name: 'here', driver: 'softgpu', enforcer: 'hook', agent: 'ok', message: null },
    devices: [],
    kernels: [],
    queue: { length: 0 },
    ...changes
  };
}

/** A source whose answers the test gives: each request waits until then. */
class ASource {
  waiting = [];
  requests = 0;
  atOnce = 0;
  mostAtOnce = 0;

  fetchText() {
    this.requests += 1;
    this.atOnce += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.atOnce);
    this._arrived?.();
    return new Promise((resolve, reject) => this.waiting.push({ resolve: status => resolve(JSON.stringify(status)), reject })).finally(() => {
      this.atOnce -= 1;
    });
  }

  async nextRequest() {
    while (this.waiting.length === 0) {
      await new Promise(resolve => (this._arrived = resolve));
    }
    return this.waiting.shift();
  }
}

/** Returns the next state for which `claim` holds. */
function until(model, claim) {
  return new Promise(resolve => {
    const look = (_, state) => {
      if (claim(state)) {
        model.changed.disconnect(look);
        resolve(state);
      }
    };
    model.changed.connect(look);
    look(model, model.state);
  });
}

/** A clock that the test advances. `next`: milliseconds until the next call; chance is always a
 * half. */
class AClock {
  time = 1e12;
  calls = [];

  now() {
    return this.time;
  }

  chance() {
    return 0.5;
  }

  after(milliseconds, call) {
    const due = { at: this.time + milliseconds, call };
    this.calls.push(due);
    return { dispose: () => (this.calls = this.calls.filter(other => other !== due)) };
  }

  get next() {
    return this.calls.length === 0 ? null : Math.min(...this.calls.map(due => due.at)) - this.time;
  }

  pass(milliseconds) {
    const end = this.time + milliseconds;
    while (this.next !== null && this.time + this.next <= end) {
      this.time += this.next;
      const due = this.calls.find(({ at }) => at === this.time);
      this.calls = this.calls.filter(other => other !== due);
      due.call();
    }
    this.time = end;
  }
}

/** A stream whose messages the test sends. */
class AStream {
  isLive = false;
  isOpen = false;
  reconnected = 0;
  liveChanged = new Signal(this);
  received = new Signal(this);

  open() {
    this.isOpen = true;
  }

  close() {
    this.isOpen = false;
  }

  reconnect() {
    this.reconnected += 1;
  }

  go(isLive) {
    this.isLive = isLive;
    this.liveChanged.emit(isLive);
  }

  say(event) {
    this.received.emit(event);
  }
}

/** A page that the test hides and shows. */
function aPage() {
  const page = { isHidden: false };
  page.hid = new Signal(page);
  page.cameBack = new Signal(page);
  page.hide = () => {
    page.isHidden = true;
    page.hid.emit();
  };
  page.show = why => {
    page.isHidden = false;
    page.cameBack.emit(why);
  };
  return page;
}

const turn = () => new Promise(resolve => setTimeout(resolve, 0));

function aModel(t, intervalSeconds = 0.01) {
  const source = new ASource();
  const model = new GpuKernelsModel({ source, intervalSeconds });
  t.after(() => model.dispose());
  return { source, model };
}

/** A memory with the interface of the browser's storage. */
function aMemory(text = null) {
  return { get: () => text, set: changed => (text = changed) };
}

function anEnding(changes = {}) {
  return { code: 'culled', message: 'the kernel was ended', at: '2026-01-01T00:00:00Z', by: '', ...changes };
}

function aKernel(id, changes = {}) {
  const nothing = { termination: null, last_crash: null, scheduled_termination: null, devices: [], residency: null, resize: null };
  const size = { gpus: 0.25, requested_memory_bytes: null, priority: 'normal', memory_limit_bytes: 4 * GIB };
  const use = { used_bytes: 0, over_limit_bytes: 0, reason: null, queue_position: null };
  return { id, owner: 'ada', state: 'on_gpu', label: '', name: 'python3', ...nothing, ...size, ...use, ...changes };
}

/** Returns the server's report of a kernel in another state. */
function anEvent(kernel_id, changes = {}) {
  const sizes = { gpus: 0.25, memory_limit_bytes: 4 * GIB, used_bytes: 0, over_limit_bytes: 0, swapped_bytes: 0 };
  const kernel = { kernel_id, owner: 'ada', label: '', state: 'swapped_out', was: 'on_gpu', reason: null };
  return { ...kernel, kind: 'state', ...sizes, paused: false, queued: null, resize: null, evicted: null, ...changes };
}

const over = (id, changes) => aKernel(id, { state: 'ended', termination: anEnding(changes) });

module.exports = {
  AClock,
  ASource,
  AStream,
  GIB,
  aKernel,
  aMemory,
  aModel,
  aPage,
  aStatus,
  anEnding,
  anEvent,
  compiled,
  over,
  turn,
  until
};
