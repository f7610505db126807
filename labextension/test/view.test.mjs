import assert from 'node:assert/strict';
import { test } from 'node:test';

import { outdated, viewOf } from '../lib/status/view.js';

const kernel = {
  id: 'k1',
  kernel_id: 'jupyter-1',
  name: 'gpu2',
  node: 'gpu2',
  state: 'idle',
  link: 'up',
  gpus: ['GPU-aaaa']
};

const textOf = changes => viewOf([{ ...kernel, ...changes }], 'jupyter-1').text;

test('nothing is shown for other kernels', () => {
  assert.equal(viewOf([kernel], 'jupyter-2'), null);
  assert.equal(viewOf([{ ...kernel, kernel_id: null }], 'jupyter-1'), null);
  assert.equal(viewOf([], 'jupyter-1'), null);
});

test('a kernel that is well shows its node and GPUs', () => {
  assert.equal(textOf({}), 'gpu2 (1 GPU)');
  assert.equal(textOf({ gpus: ['GPU-aaaa', 'GPU-bbbb'] }), 'gpu2 (2 GPUs)');
  assert.equal(textOf({ gpus: [] }), 'gpu2 (no GPU yet)');
});

test('trouble comes first', () => {
  assert.equal(textOf({ link: 'away' }), 'gpu2: out of reach, reconnecting…');
  assert.equal(textOf({ link: 'connecting' }), 'gpu2: connecting…');
  assert.equal(textOf({ state: 'waiting' }), 'gpu2: waiting for a GPU');
  assert.equal(textOf({ state: 'ended', link: 'away' }), 'gpu2: ended');
});

test('the tooltip names node, state, link and GPUs', () => {
  const { tooltip } = viewOf([kernel], 'jupyter-1');
  for (const word of ['gpu2', 'k1', 'idle', 'up', 'GPU-aaaa']) {
    assert.ok(tooltip.includes(word), `${word} in ${tooltip}`);
  }
});

test('what keeps a kernel out of reach, and what would help', () => {
  const error = { kind: 'AuthError', hop: 'login', cause: 'it wants a code', remedy: 'Run “jupyter gpu-kernel login gpu2”.' };
  const { text, tooltip } = viewOf([{ ...kernel, link: 'away', error }], 'jupyter-1');
  assert.match(text, /until you sign in/);
  assert.ok(tooltip.includes('login: it wants a code\nRun “jupyter gpu-kernel login gpu2”.'), tooltip);
  assert.match(viewOf([{ ...kernel, link: 'taken' }], 'jupyter-1').text, /another computer/);
});

test('a host key that is not accepted is no matter of waiting', () => {
  const error = { kind: 'HostKeyError', hop: 'gpu2', cause: 'its host key has changed', remedy: 'Ask the administrator.' };
  const { text, tooltip } = viewOf([{ ...kernel, link: 'away', error }], 'jupyter-1');
  assert.match(text, /host key/);
  assert.doesNotMatch(text, /reconnecting/);
  assert.ok(tooltip.includes('gpu2: its host key has changed\nAsk the administrator.'));
});

test('an ended kernel says why, and what starts a new one', () => {
  const { tooltip } = viewOf([{ ...kernel, state: 'ended', gpus: [], cause: 'out of memory', remedy: 'Use less.' }], 'jupyter-1');
  assert.ok(tooltip.includes('out of memory\nUse less.\nThe next cell'), tooltip);
  assert.doesNotMatch(tooltip, /GPUs/);
  assert.match(viewOf([{ ...kernel, gpus: [] }], 'jupyter-1').tooltip, /GPUs: none; the first cell takes them/);
});

test('GPUs have the names that users know', () => {
  assert.match(viewOf([kernel], 'jupyter-1').tooltip, /GPUs: GPU-aaaa$/);
  const named = { ...kernel, gpu_names: ['GPU 0 (NVIDIA A100)'] };
  assert.match(viewOf([named], 'jupyter-1').tooltip, /GPUs: GPU 0 \(NVIDIA A100\)$/);
});

test('what is known stays to be seen while the browser is offline', () => {
  const { text, tooltip } = outdated(viewOf([kernel], 'jupyter-1'), kernel.node);
  assert.equal(text, 'gpu2: Jupyter server out of reach');
  assert.ok(tooltip.endsWith(viewOf([kernel], 'jupyter-1').tooltip));
});
