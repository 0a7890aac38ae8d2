// The page's notice that a kernel lacks a size. Run by test_model.py on compiled sources.

'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { compiled } = require('./scripts.cjs');
const { MissingSizes } = compiled('sizes/missing_size');

const anError = (evalue, ename = 'RuntimeError', kind = 'error') => ({
  header: { msg_type: kind },
  content: { ename, evalue }
});

test('the words of each library for a missing CUDA device are understood', () => {
  const missing = new MissingSizes();
  const words = [
    'Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver',
    'No CUDA GPUs are available',
    'cudaErrorNoDevice: no CUDA-capable device is detected',
    'CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected',
    'Call to cuInit results in CUDA_ERROR_NO_DEVICE',
    'CUDA driver version is insufficient for CUDA runtime version',
    'libcuda.so.1: cannot open shared object file: No such file or directory',
    'Ensure the NVIDIA display driver is installed'
  ];
  assert.deepEqual(words.filter((text, number) => !missing.hear(`k-${number}`, anError(text))), []);
});

test('it is told once a kernel, and of no other error', () => {
  const missing = new MissingSizes();
  assert.equal(missing.hear('k-1', anError('division by zero', 'ZeroDivisionError')), false);
  assert.equal(missing.hear('k-1', anError('CUDA out of memory')), false);
  assert.equal(missing.hear('k-1', anError('No CUDA GPUs are available', 'x', 'stream')), false);
  assert.equal(missing.hear('k-1', anError('No CUDA GPUs are available')), true);
  assert.equal(missing.hear('k-1', anError('No CUDA GPUs are available')), false);
  assert.equal(missing.hear('k-2', anError('No CUDA GPUs are available')), true);
});
