import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RanCells } from '../lib/outputs/ranCells.js';

function stored() {
  const ids = new Set();
  return { add: id => void ids.add(id), has: id => ids.has(id) };
}

test('a cell that is run before the id of the kernel is known counts', () => {
  const ids = stored();
  const cells = new RanCells(ids);
  cells.add('c0');
  assert.ok(!cells.has('c0'));
  cells.setKernel('k1');
  cells.add('c1');
  assert.ok(cells.has('c0') && cells.has('c1') && !cells.has('c2'));
  cells.setKernel(''); // the connection was lost
  cells.add('c2');
  cells.setKernel('k1');
  assert.ok(cells.has('c2'));
  const reloaded = new RanCells(ids);
  reloaded.setKernel('k1');
  assert.ok(reloaded.has('c0') && reloaded.has('c1') && reloaded.has('c2'));
});

test('what was run in one kernel was not run in another', () => {
  const cells = new RanCells(stored());
  cells.add('c0');
  cells.reset();
  cells.setKernel('k2');
  assert.ok(!cells.has('c0'));
});
