import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Actions } from '../lib/panel/actions.js';

const problemOf = async error => ({ kind: 'Error', hop: 'login', cause: error.message, remedy: '' });

test('an action is pending until the new state is known, and runs once at a time', async () => {
  let release;
  const refreshed = new Promise(resolve => (release = resolve));
  const actions = new Actions(problemOf, () => refreshed);
  const first = actions.run('k1', 'stopping…', async () => undefined);
  assert.equal(actions.pending('k1'), 'stopping…');
  assert.equal(await actions.run('k1', 'again', () => assert.fail('twice')), false);
  release();
  assert.equal(await first, true);
  assert.equal(actions.pending('k1'), '');
});

test('a failure is told until it is dismissed, or the next attempt', async () => {
  const actions = new Actions(problemOf, async () => undefined);
  const fail = () => Promise.reject(new Error('no route'));
  assert.equal(await actions.run('k1', '…', fail), false);
  assert.equal(actions.problem('k1').cause, 'no route');
  assert.equal(actions.problem('k2'), null);
  actions.dismiss('k1');
  assert.equal(actions.problem('k1'), null);
  await actions.run('k1', '…', fail);
  assert.equal(await actions.run('k1', '…', async () => undefined), true);
  assert.equal(actions.problem('k1'), null);
});
