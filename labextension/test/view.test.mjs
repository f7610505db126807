import assert from 'node:assert/strict';
import { test } from 'node:test';

import { clock } from '../lib/format.js';
import { usesOf } from '../lib/status/uses.js';
import { outdated, viewOf } from '../lib/status/view.js';
import { trans } from './trans.mjs';

const NOW = 1_800_000_000;
const kernel = {
  id: 'k1',
  kernel_id: 'jupyter-1',
  name: 'gpu2',
  node: 'gpu2',
  state: 'idle',
  link: 'up',
  gpus: ['GPU-aaaa']
};

const view = (changes, uses = []) => viewOf({ ...kernel, ...changes }, uses, NOW, trans);
const textOf = (changes, uses) => view(changes, uses).text;

test('a kernel that is well shows its node, GPUs and link', () => {
  assert.equal(textOf({}), 'gpu2 · 1 GPU · connected');
  assert.equal(textOf({ gpu_names: ['GPU 0 (NVIDIA A100)'], round_trip_ms: 3.2 }), 'gpu2 · GPU 0 · connected, 3 ms');
  assert.equal(textOf({ gpus: ['GPU-aaaa', 'GPU-bbbb'], round_trip_ms: 0.42 }), 'gpu2 · 2 GPUs · connected, < 1 ms');
  assert.equal(textOf({ gpus: [] }), 'gpu2 · no GPU yet · connected');
  assert.equal(view({}).level, 'normal');
});

test('memory and use are those of all its GPUs together, and left out where one is unknown', () => {
  const gpu = { memory_used_mib: 12595, memory_total_mib: 24576, utilization: 97 };
  assert.equal(textOf({}, [gpu]), 'gpu2 · 1 GPU · 12.3 of 24 GiB, 97 % · connected');
  assert.equal(textOf({}, [gpu, { ...gpu, utilization: 3 }]), 'gpu2 · 1 GPU · 24.6 of 48 GiB, 50 % · connected');
  assert.equal(textOf({}, [gpu, { ...gpu, utilization: null }]), 'gpu2 · 1 GPU · 24.6 of 48 GiB · connected');
  assert.equal(textOf({}, [{}]), 'gpu2 · 1 GPU · connected');
});

test('the tooltip names others on its GPUs', () => {
  const processes = [{ user: 'bob', memory_mib: 12288, mine: false }, { user: 'me', memory_mib: 512, mine: true }];
  assert.match(view({}, [{ processes }]).tooltip, /^bob 12 GiB, you 0.5 GiB$/m);
  assert.doesNotMatch(view({}, [{ processes: processes.slice(1) }]).tooltip, /you/);
});

test('the use of GPUs comes from the row of the kernel, or else from an overview that is recent', () => {
  const mine = { kernel: 'k1', utilization: 5 };
  const overview = { time: NOW - 10, kernels: [], nodes: [{ gpus: [mine, { kernel: 'k2' }, {}] }] };
  assert.deepEqual(usesOf(kernel, overview, NOW), [mine]);
  assert.deepEqual(usesOf(kernel, { ...overview, time: NOW - 100 }, NOW), []);
  assert.deepEqual(usesOf(kernel, null, NOW), []);
  const newer = { utilization: 7 };
  assert.deepEqual(usesOf({ ...kernel, gpu_use: [newer] }, overview, NOW), [newer]);
  assert.deepEqual(usesOf({ ...kernel, gpu_use: null }, overview, NOW), [mine]);
});

test('the time that is left of a job is worth attention when it is short', () => {
  assert.equal(textOf({ ends_at: NOW + 7500 }), 'gpu2 · 1 GPU · connected · 2 h 5 min left');
  assert.equal(view({ ends_at: NOW + 7500 }).level, 'normal');
  assert.equal(textOf({ ends_at: NOW + 59 }), 'gpu2 · 1 GPU · connected · 59 s left');
  assert.equal(view({ ends_at: NOW + 59 }).level, 'attention');
});

test('trouble comes first', () => {
  assert.equal(textOf({ link: 'away' }), 'gpu2 · reconnecting…');
  assert.equal(textOf({ link: 'away', away_since: NOW }), `gpu2 · reconnecting since ${clock(NOW)}`);
  assert.equal(textOf({ link: 'connecting' }), 'gpu2 · connecting…');
  assert.equal(textOf({ state: 'waiting' }), 'gpu2 · waits for a GPU');
  assert.equal(textOf({ state: 'waiting', job: { id: '5', state: 'PENDING' } }), 'gpu2 · waits for its job');
  assert.equal(textOf({ state: 'waiting', job: { id: '5', state: 'RUNNING' } }), 'gpu2 · waits for a GPU');
  assert.equal(textOf({ state: 'ended', link: 'away' }), 'gpu2 · ended');
  assert.deepEqual(
    [view({ link: 'away' }), view({ state: 'ended' }), view({ link: 'taken' })].map(one => one.level),
    ['attention', 'problem', 'problem']
  );
});

test('the tooltip names node, state, link and GPUs', () => {
  const { tooltip } = view({ busy_since: NOW, state: 'busy' });
  for (const word of ['gpu2', 'k1', `busy (since ${clock(NOW)})`, 'Link: connected', 'GPU-aaaa']) {
    assert.ok(tooltip.includes(word), `${word} in ${tooltip}`);
  }
});

test('what keeps a kernel out of reach, and what would help', () => {
  const error = { kind: 'AuthError', hop: 'login', cause: 'it wants a code', remedy: 'Run “jupyter gpu-kernel login gpu2”.' };
  const { text, tooltip, signIn, level } = view({ link: 'away', error });
  assert.match(text, /until you sign in/);
  assert.ok(tooltip.includes('login: it wants a code\nRun “jupyter gpu-kernel login gpu2”.'), tooltip);
  assert.deepEqual([signIn, level], [true, 'problem']);
  assert.match(textOf({ link: 'taken' }), /another computer/);
});

test('a host key that is not accepted is no matter of waiting', () => {
  const error = { kind: 'HostKeyError', hop: 'gpu2', cause: 'its host key has changed', remedy: 'Ask the administrator.' };
  const { text, tooltip, signIn } = view({ link: 'away', error });
  assert.match(text, /host key/);
  assert.doesNotMatch(text, /reconnecting/);
  assert.ok(tooltip.includes('gpu2: its host key has changed\nAsk the administrator.'));
  assert.equal(signIn, false);
});

test('an ended kernel says why, and what starts a new one', () => {
  const { tooltip } = view({ state: 'ended', gpus: [], cause: 'out of memory', remedy: 'Use less.' });
  assert.ok(tooltip.includes('out of memory\nUse less.\nThe next cell'), tooltip);
  assert.doesNotMatch(tooltip, /GPUs/);
  assert.match(view({ gpus: [] }).tooltip, /GPUs: none; the first cell takes them/);
});

test('GPUs have the names that users know', () => {
  assert.match(view({}).tooltip, /GPUs: GPU-aaaa$/);
  assert.match(view({ gpu_names: ['GPU 0 (NVIDIA A100)'] }).tooltip, /GPUs: GPU 0 \(NVIDIA A100\)$/);
});

test('what is known stays to be seen while the browser is offline', () => {
  const { text, tooltip } = outdated(view({}), kernel.node, trans);
  assert.equal(text, 'gpu2 · Jupyter server out of reach');
  assert.ok(tooltip.endsWith(view({}).tooltip));
});
