import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseStarts, WaitingStarts } from '../lib/waiting/starts.js';

const [first, second] = ['a', 'b'].map(letter => ({
  id: letter.repeat(32),
  name: 'gpu2',
  node: 'login',
  notebook: ''
}));

test('what the server says is checked, and is one line', () => {
  assert.deepEqual(parseStarts([first, { ...second, notebook: 'a\nb.ipynb' }]), [
    first,
    { ...second, notebook: 'a b.ipynb' }
  ]);
  assert.deepEqual(parseStarts([null, 1, {}, { ...first, id: '../x' }, { ...first, name: 3 }]), []);
  assert.deepEqual(parseStarts({ id: 'x' }), []);
  assert.equal(parseStarts(Array(1000).fill(first)).length, 20);
});

test('each that waits is shown once, and no longer than it waits', async () => {
  const log = [];
  let waiting = [first];
  const starts = new WaitingStarts({
    fetch: async () => waiting,
    tell: ({ id }) => {
      log.push(`shown ${id[0]}`);
      return () => log.push(`closed ${id[0]}`);
    }
  });
  await starts.refresh();
  waiting = [first, second];
  await Promise.all([starts.refresh(), starts.refresh()]);
  waiting = [second];
  await starts.refresh();
  assert.deepEqual(log, ['shown a', 'shown b', 'closed a']);
});

test('a server that does not answer changes nothing', async () => {
  const log = [];
  let fails = false;
  const starts = new WaitingStarts({
    fetch: async () => {
      if (fails) {
        throw new Error('gone');
      }
      return [first];
    },
    tell: () => {
      log.push('shown');
      return () => log.push('closed');
    }
  });
  await starts.refresh();
  fails = true;
  await starts.refresh();
  fails = false;
  await starts.refresh();
  assert.deepEqual(log, ['shown']);
});
