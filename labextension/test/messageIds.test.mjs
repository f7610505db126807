import assert from 'node:assert/strict';
import { test } from 'node:test';

import { execution, MessageIds } from '../lib/outputs/messageIds.js';

function storage() {
  const items = new Map();
  return { getItem: key => items.get(key) ?? null, setItem: (key, value) => items.set(key, value) };
}

test('the most recent ids are remembered', () => {
  const shared = storage();
  for (let i = 0; i <= 500; i++) {
    new MessageIds(shared, 'a').add(`m${i}`);
  }
  const again = new MessageIds(shared, 'a');
  assert.ok(!again.has('m0'));
  assert.ok(again.has('m1') && again.has('m500'));
  assert.ok(!new MessageIds(shared, 'b').has('m500'), 'another set is another set');
});

test('what somebody else wrote is as good as nothing', () => {
  for (const text of ['', '{', 'null', '{"m1": 1}', '"m1"']) {
    const shared = storage();
    shared.setItem('a', text);
    const ids = new MessageIds(shared, 'a');
    assert.ok(!ids.has('m1'), text);
    ids.add('m1');
    assert.ok(ids.has('m1'), text);
  }
});

test('an execution is one of its cell', () => {
  assert.notEqual(execution('c1', 'm1'), execution('c2', 'm1'));
  assert.notEqual(execution('c1', 'm1'), execution('c1', 'm2'));
});
