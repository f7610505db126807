import assert from 'node:assert/strict';
import { test } from 'node:test';

import { idOf, inert, kernelsOf, nodeName, queueOf, specNameOf } from '../src/hub/border.js';
import { overviewOf } from '../src/overview.js';

const row = { id: 'k1', node: 'gpu2', hop: 'gpu2', state: 'idle', gpus: ['GPU-a'], notebook: '/w/a.ipynb', name: 'gpu2' };

test('texts make no link and no icon, and are one line', () => {
  assert.equal(inert('[Sign in](command:evil) $(error)\n\u202Enext'), '[Sign in] (command:evil) $ (error) ?next');
  assert.equal(inert('x'.repeat(1000)).length, 300);
  assert.equal(inert({ toString: () => 'x' }), '');
});

test('ids and names are plain', () => {
  assert.equal(idOf('8e3cf53ea13f'), '8e3cf53ea13f');
  assert.deepEqual(['--all', '', 'a b', 7, 'x'.repeat(65)].map(idOf), ['', '', '', '', '']);
  assert.equal(specNameOf('gpu-2.x'), 'gpu-2.x');
  assert.equal(specNameOf('a/b'), '');
});

test('a node cannot take the name of another one', () => {
  assert.equal(nodeName('gpu2.cluster', 'alice@gpu2:7092'), 'gpu2.cluster');
  assert.equal(nodeName('gpu1', 'alice@gpu2'), 'gpu2 (gpu1)');
});

test('malformed rows of kernels are left out, and malformed values are unknown', () => {
  const rows = kernelsOf([row, { ...row, id: '../x' }, null, 'text', { error: {} }, { ...row, id: 'k2', state: 'evil', gpus: 'x', ends_at: 'x', link: {} }]);
  assert.deepEqual(rows.map(one => one.id), ['k1', 'k2']);
  const { state, gpus, ends_at, link } = rows[1]!;
  assert.deepEqual({ state, gpus, ends_at, link }, { state: 'away', gpus: [], ends_at: null, link: null });
  assert.deepEqual(kernelsOf('x'), []);
  assert.equal(kernelsOf(Array(9000).fill(row)).length, 5000);
});

test('the priority of others is not known', () => {
  const [mine, other] = queueOf({ queue: [{ yours: true, priority: 3, id: 'k1' }, { priority: 3, id: '$(x)' }] });
  assert.deepEqual([mine!.priority, other!.priority, other!.id], [3, null, '']);
});

const gpu = { hop: 'gpu2', uuid: 'GPU-a', index: 0, name: 'A100', free: false, lease: { id: 'k1' }, processes: [], queue: [] };

test('the overview joins nodes, GPUs, and kernels', () => {
  const known = [{ node: 'gpu2', names: ['gpu2'], connected: true, state: 'up', problem: null }];
  const attached = [{ ...row, link: 'up', round_trip_ms: 2 }, { ...row, id: 'k9', hop: 'gpu9', link: 'away' }];
  const { nodes, kernels } = overviewOf({ nodes: known, gpus: [gpu], ps: [row], kernels: attached }, 0);
  assert.deepEqual(nodes.map(one => [one.node, one.names, one.gpus[0]!.kernel]), [['gpu2', ['gpu2'], 'k1']]);
  assert.deepEqual(kernels.map(one => [one.id, one.link, one.round_trip_ms]), [['k1', 'up', 2], ['k9', 'away', null]]);
});

test('another node does not claim a GPU with its UUID', () => {
  const { nodes } = overviewOf({ nodes: [], gpus: [{ ...gpu, hop: 'evil', lease: null }], ps: [row], kernels: [] }, 0);
  assert.equal(nodes[0]!.gpus[0]!.kernel, null);
});

test('a node that is late is connecting, and one that does not answer has a problem', () => {
  const known = [{ node: 'gpu2', names: [], connected: false, state: 'connecting' }];
  const late = (seconds: number): unknown[] => [{ node: 'gpu2', late: seconds, error: { cause: 'late' } }];
  const problemAfter = (seconds: number): unknown =>
    overviewOf({ nodes: known, gpus: late(seconds), ps: late(seconds), kernels: [] }, 0).nodes[0]!.problem?.cause;
  assert.deepEqual([2, 12].map(problemAfter), [undefined, 'late']);
});
