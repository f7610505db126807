import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { clusterView } from '../lib/panel/clusterView.js';
import { kernelView, kernelViews } from '../lib/panel/kernelView.js';
import { nodeView, totalOf } from '../lib/panel/nodeView.js';
import { trans } from './trans.mjs';

const recorded = JSON.parse(await readFile(new URL('overview.json', import.meta.url)));
const NOW = 1_000_000;
const kernel = { id: 'k1', kernel_id: 'j1', name: 'gpu2', node: 'gpu2', state: 'idle', link: 'up', gpus: [], path: 'a/b.ipynb' };
const view = changes => kernelView(trans, { ...kernel, ...changes }, NOW);
const gpu = { index: 0, uuid: 'GPU-1', name: 'NVIDIA GeForce RTX 3090', memory_used_mib: 12288, memory_total_mib: 24576, utilization: 40 };
const node = { node: 'gpu2', names: ['gpu2'], connected: true, problem: null, gpus: [gpu], queue: [], cluster: null };
const nodeOf = (changes, kernels = []) => nodeView(trans, { ...node, ...changes }, kernels, NOW);
const gpuOf = (changes, kernels = []) => nodeOf({ gpus: [{ ...gpu, ...changes }] }, kernels).gpus[0];

test('a kernel says where it is and what it does', () => {
  const busy = view({ state: 'busy', busy_since: NOW - 700, gpus: ['GPU-1'], gpu_names: ['GPU 0 (RTX 3090)'], round_trip_ms: 3 });
  assert.deepEqual([busy.title, busy.state, busy.tone, busy.place], ['b.ipynb', 'busy 11 min', 'busy', 'gpu2 · GPU 0 · 3 ms']);
  assert.ok(busy.canInterrupt && busy.canRestart && busy.canStop && !busy.canAttach);
  assert.equal(view({ gpus: ['GPU-1', 'GPU-2'] }).place, 'gpu2 · 2 GPUs');
  assert.equal(view({ gpus: ['a', 'b'], gpu_names: ['GPU 0 (A100)', 'GPU 3 (A100)'] }).place, 'gpu2 · GPU 0, 3');
  assert.equal(view({}).place, 'gpu2 · no GPU');
  assert.equal(view({ path: null, notebook: '' }).title, 'gpu2 (no notebook)');
  assert.equal(view({ path: null, notebook: 'C:\\work\\c.ipynb' }).title, 'c.ipynb');
});

test('a kernel without a front end here can be attached', () => {
  const detached = view({ kernel_id: null, link: null, state: 'detached' });
  assert.ok(detached.canAttach && !detached.canInterrupt && detached.canRestart && detached.canStop);
  assert.equal(detached.state, 'detached');
  assert.equal(view({ kernel_id: null, link: null, attached_from: 'bench' }).note, 'attached from bench');
});

test('what cannot be reached cannot be acted upon, but stopped', () => {
  const away = view({ state: 'away', link: 'away', error: { hop: 'login', cause: 'reset', remedy: '' } });
  assert.ok(!away.canInterrupt && !away.canRestart && !away.canAttach && away.canStop);
  assert.deepEqual([away.tone, away.problem.hop], ['trouble', 'login']);
});

test('the time that is left of a job is told, and when it is short', () => {
  assert.equal(view({ ends_at: NOW + 7200 }).note, '2 h 0 min left of its job');
  assert.ok(view({ ends_at: NOW + 600 }).isEnding && !view({ ends_at: NOW + 7200 }).isEnding && !view({}).isEnding);
});

test('an ended kernel says why; a node is quoted', () => {
  assert.equal(view({ state: 'ended', cause: 'out of memory.', remedy: 'Use less.' }).note, 'out of memory. Use less.');
  assert.equal(view({ problem: 'the disk is full' }).note, 'gpu2 says: the disk is full');
});

test('kernels that need attention come first', () => {
  const states = [{ state: 'idle' }, { state: 'busy' }, { state: 'waiting' }, { state: 'away' }, { state: 'detached' }];
  const order = kernelViews(trans, states.map((each, id) => ({ ...kernel, ...each, id: `k${id}` })), NOW);
  assert.deepEqual(order.map(each => each.id), ['k3', 'k1', 'k2', 'k0', 'k4']);
  const waiting = [{ ...kernel, id: 'a', state: 'waiting', place: 2 }, { ...kernel, id: 'b', state: 'waiting', place: 1 }];
  assert.deepEqual(kernelViews(trans, waiting, NOW).map(each => each.id), ['b', 'a']);
});

test('a GPU is mine, free, or says who has it and why it is not free', () => {
  const mine = gpuOf({ kernel: 'k1', lease: { user: 'me', since: NOW - 120 } }, [kernel]);
  assert.deepEqual([mine.holder, mine.who, mine.path, mine.since, mine.reason], ['mine', 'b.ipynb', 'a/b.ipynb', '2 min', '']);
  const bob = gpuOf({ free: false, lease: { user: 'bob', since: NOW - 120, idle_since: NOW - 60 }, reason: 'leased by bob' });
  assert.deepEqual([bob.holder, bob.who, bob.since, bob.reason], ['other', 'bob', 'idle 1 min', '']);
  const process = gpuOf({ free: false, processes: [{ user: 'eve', since: NOW - 60 }, { user: '?' }], reason: 'in use by eve' });
  assert.deepEqual([process.who, process.since, process.reason], ['eve', '1 min', '']);
  const ghost = gpuOf({ free: false, reason: '7.8 GiB are used by no visible process' });
  assert.deepEqual([ghost.who, ghost.reason], ['not free', '7.8 GiB are used by no visible process']);
  assert.deepEqual([gpuOf({ free: true }).who, gpuOf({ free: true }).since], ['free', '']);
});

test('everybody on a GPU is named with the memory of each: a process of another user is not drawn as mine', () => {
  const process = (user, memory_mib, mine) => ({ user, memory_mib, mine });
  const leased = (...processes) => gpuOf({ kernel: 'k1', lease: { user: 'me' }, processes }, [kernel]);
  const [bob, me, ghost] = [process('bob', 12000, false), process('me', 400, true), process('?', 1024, false)];
  const shared = leased(bob, me, me);
  assert.deepEqual([shared.holder, shared.who, shared.users], ['shared', 'b.ipynb', 'bob 11.7 GiB, you 0.8 GiB']);
  assert.deepEqual([leased(me).holder, leased(me).users], ['mine', '']);
  assert.deepEqual([leased(me, ghost).holder, leased(me, ghost).users], ['mine', 'you 0.4 GiB, unknown user 1 GiB']);
  assert.equal(leased(process('bob', null, false), bob).users, 'bob');
  assert.match(shared.hint, /bob 11.7 GiB/);
  const theirs = gpuOf({ free: false, lease: { user: 'eve' }, processes: [bob] });
  assert.deepEqual([theirs.holder, theirs.who, theirs.users], ['other', 'eve, bob', 'bob 11.7 GiB']);
  assert.equal(gpuOf({ free: false, processes: [bob] }).users, '', 'the bar of the memory says it');
});

test('what the driver does not report is unknown, and not 0', () => {
  const { memory, usage } = gpuOf({ memory_used_mib: null, utilization: null });
  assert.deepEqual([memory.part, memory.text, usage.part, usage.text], [null, 'unknown', null, 'unknown']);
  const known = gpuOf({});
  assert.deepEqual([known.memory.part, known.memory.text, known.usage.text], [0.5, '12 / 24 GiB', '40 %']);
});

test('a node in a line: free GPUs, or what keeps it from being used', () => {
  assert.equal(nodeOf({ gpus: [gpu, { ...gpu, free: true }] }).summary, '1 of 2 free');
  assert.equal(nodeOf({ gpus: [gpu, gpu] }).models, '2 × RTX 3090');
  assert.equal(nodeOf({ connected: false, gpus: [], problem: { login: true } }).summary, 'sign in');
  assert.equal(nodeOf({ connected: false, gpus: [], problem: {} }).summary, 'out of reach');
  assert.equal(nodeOf({ connected: false, gpus: [] }).summary, 'connecting…');
  assert.equal(nodeOf({ gpus: [gpu, { ...gpu, free: true, kernel: 'k1' }] }).summary, '0 of 2 free', 'my kernel has it');
  assert.equal(totalOf(trans, [node, { ...node, gpus: [{ ...gpu, free: true }] }]), '1 of 2 free');
});

test('who waits: my kernels by their notebooks, others by their names', () => {
  const queue = [
    { user: 'bob', count: 2, since: NOW - 60, place: 1, mine: false, id: 'theirs' },
    { user: 'me', count: 1, since: NOW - 30, place: 2, mine: true, id: 'k1', priority: 3, notebook: '/home/me/b.ipynb' }
  ];
  const [bob, mine] = nodeOf({ queue }).queue;
  assert.deepEqual([bob.id, bob.who, bob.count, bob.waited, bob.place], [null, 'bob', '2 GPUs', '1 min', '1']);
  assert.deepEqual([mine.id, mine.who, mine.priority, mine.since, mine.count], ['k1', 'b.ipynb', 3, NOW - 30, '']);
});

test('partitions and jobs of Slurm', () => {
  const { partitions, jobs } = clusterView(
    trans,
    {
      partitions: [{ name: 'gpu', up: true, gpus: [{ type: 'a100', total: 8, free: 2 }] }, { name: 'cpu', gpus: [] }],
      jobs: [
        { id: '7', name: 'x', state: 'RUNNING', nodes: ['gpu1'], end_time: NOW + 600 },
        { id: '8', name: 'y', state: 'PENDING', reason: 'Resources', place: 3, nodes: [], start_estimate: NOW + 3600 }
      ]
    },
    NOW
  );
  assert.deepEqual(partitions.map(each => [each.name, each.type, each.text, each.part]), [
    ['gpu', 'a100', '2 of 8 free', 0.75],
    ['cpu', '', 'no GPU', null]
  ]);
  assert.deepEqual(jobs.map(each => each.detail), [
    'gpu1 · 10 min left',
    'Resources · place 3 · starts in about 1 h 0 min'
  ]);
});

test('an answer of a real server can be shown', () => {
  const views = recorded.nodes.map(each => nodeView(trans, each, recorded.kernels, recorded.time));
  assert.ok(views.some(each => each.gpus.some(one => one.holder === 'mine' && one.who.endsWith('.ipynb'))));
  assert.ok(views.some(each => each.gpus.some(one => one.who === 'bob')));
  assert.ok(views.some(each => each.queue.some(one => one.id !== null)));
  assert.equal(kernelViews(trans, recorded.kernels, recorded.time).length, recorded.kernels.length);
  assert.doesNotMatch(JSON.stringify(views), /undefined|NaN|%\d/);
});
