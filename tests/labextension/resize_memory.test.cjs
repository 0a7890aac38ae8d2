// Which changes of size a notebook remembers, without a browser. Run by test_model.py.

'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');

const compiled = process.env.ALIQUOT_COMPILED;
const { Signal } = require('@lumino/signaling');
const { ResizeMemory } = require(path.join(compiled, 'resize_memory.js'));

function aMemory() {
  const source = {};
  const resized = new Signal(source);
  const kernelChanged = new Signal(source);
  const told = [];
  const memory = new ResizeMemory({ resized }, { kernelChanged }, async kernel => told.push(kernel.gpus));
  return { resized, kernelChanged, told, memory };
}

const aKernel = changes => ({ id: 'k', gpus: 0.25, resize: null, ...changes });

test('a change in force is told once', () => {
  const { resized, kernelChanged, told } = aMemory();
  resized.emit(aKernel({ gpus: 0.5 }));
  kernelChanged.emit({ id: 'k', kernel: aKernel({ gpus: 0.5 }) });
  assert.deepEqual(told, [0.5]);
});

test('a change that waits is told when it is in force', () => {
  const { resized, kernelChanged, told } = aMemory();
  resized.emit(aKernel({ resize: { state: 'pending' } }));
  kernelChanged.emit({ id: 'k', kernel: aKernel({ resize: { state: 'pending' } }) });
  assert.deepEqual(told, []);
  kernelChanged.emit({ id: 'k', kernel: aKernel({ gpus: 0.5 }) });
  assert.deepEqual(told, [0.5]);
});

test("another's change, and what follows the end of a kernel or the notebook, is not told", () => {
  const { resized, kernelChanged, told, memory } = aMemory();
  kernelChanged.emit({ id: 'k', kernel: aKernel({ gpus: 1 }) });
  resized.emit(aKernel({ resize: { state: 'pending' } }));
  kernelChanged.emit({ id: 'k', kernel: null });
  kernelChanged.emit({ id: 'k', kernel: aKernel({ gpus: 1 }) });
  memory.dispose();
  resized.emit(aKernel());
  assert.deepEqual(told, []);
});
