import assert from 'node:assert/strict';
import { test } from 'node:test';

import { detailOf, labelOf, runningKernels, tooltipOf } from '../lib/running/items.js';
import { trans } from './trans.mjs';

const NOW = 1_800_000_000;
const kernel = { id: 'k1', kernel_id: null, name: 'gpu2', node: 'gpu2', state: 'detached', link: null, gpus: [] };

test('all kernels that run are listed once, with what is newest', () => {
  const overview = { kernels: [{ ...kernel, path: 'a.ipynb' }, { ...kernel, id: 'k2', state: 'ended' }] };
  const listed = runningKernels(overview, [{ ...kernel, state: 'busy' }, { ...kernel, id: 'k3' }]);
  assert.deepEqual(
    listed.map(({ id, state, path }) => [id, state, path]),
    [
      ['k1', 'busy', 'a.ipynb'],
      ['k3', 'detached', undefined]
    ]
  );
  assert.deepEqual(runningKernels(null, []), []);
});

test('a kernel has the name of its notebook, or its own', () => {
  assert.equal(labelOf({ ...kernel, path: 'work/a.ipynb' }), 'a.ipynb');
  assert.equal(labelOf({ ...kernel, path: null, notebook: 'C:\\work\\b.ipynb' }), 'b.ipynb');
  assert.equal(labelOf(kernel), 'gpu2 (k1)');
});

test('where it is, and what it does', () => {
  assert.equal(detailOf(kernel, NOW, trans), 'gpu2 · detached');
  assert.equal(detailOf({ ...kernel, state: 'busy', attached: false, busy_since: NOW - 180 }, NOW, trans), 'gpu2 · detached · busy for 3 min');
  assert.equal(detailOf({ ...kernel, state: 'idle', link: 'away' }, NOW, trans), 'gpu2 · out of reach');
  assert.match(tooltipOf({ ...kernel, notebook: '/home/a.ipynb' }, trans), /^\/home\/a.ipynb\nRemote GPU kernel gpu2 \(k1\)/);
});
