import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MAX_PRIORITY, moved, priorities } from '../lib/panel/queue.js';

const one = (id, priority, since) => ({ id, priority, since });
const ids = order => order.map(each => each.id).join('');
/** As the nodes decide it. */
const sorted = order => [...order].sort((a, b) => b.priority - a.priority || a.since - b.since || (a.id < b.id ? -1 : 1));
const after = (order, changes) => sorted(order.map(each => ({ ...each, priority: changes.get(each.id) ?? each.priority })));

test('a kernel is moved before or behind others', () => {
  const order = [one('a', 0, 1), one('b', 0, 2), one('c', 0, 3)];
  assert.equal(ids(moved(order, 'c', 0)), 'cab');
  assert.equal(ids(moved(order, 'a', 1)), 'bac');
  assert.equal(ids(moved(order, 'a', 9)), 'bca');
  assert.equal(ids(moved(order, 'x', 0)), 'abc');
});

test('only the moved kernel changes where there is room', () => {
  const order = [one('a', 0, 1), one('b', 0, 2), one('c', 0, 3)];
  assert.deepEqual([...priorities(moved(order, 'c', 0), 'c')], [['c', 1]]);
  assert.deepEqual([...priorities(moved(order, 'a', 2), 'a')], [['a', -1]]);
  assert.deepEqual([...priorities(order, 'b')], []);
  const spread = [one('a', 5, 9), one('b', 0, 1), one('c', -5, 2)];
  assert.deepEqual([...priorities(moved(spread, 'c', 1), 'c')], [['c', 1]]);
});

test('from every order to every order, and the priorities stay in their range', () => {
  const levels = [-MAX_PRIORITY, -1, 0, 0, 1, MAX_PRIORITY];
  for (let round = 0; round < 500; round++) {
    const count = 2 + (round % 5);
    const order = sorted(
      Array.from({ length: count }, (_, index) => one(`k${index}`, levels[(round * 7 + index * 3) % 6], (round * index) % 4))
    );
    for (const { id } of order) {
      for (let index = 0; index < count; index++) {
        const wanted = moved(order, id, index);
        const changes = priorities(wanted, id);
        assert.equal(ids(after(order, changes)), ids(wanted), JSON.stringify({ order, id, index, changes: [...changes] }));
        assert.ok([...changes.values()].every(each => Number.isInteger(each) && Math.abs(each) <= MAX_PRIORITY));
      }
    }
  }
});
