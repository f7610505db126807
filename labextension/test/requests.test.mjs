import assert from 'node:assert/strict';
import { test } from 'node:test';

import { OwnRequests } from '../lib/outputs/requests.js';

const request = msg_id => ({ header: { msg_id, msg_type: 'execute_request' }, parent_header: {}, content: {} });
const reply = msg_id => ({ header: { msg_type: 'execute_reply' }, parent_header: { msg_id }, content: { status: 'ok' } });
const status = (msg_id, execution_state) => ({
  header: { msg_type: 'status' },
  parent_header: { msg_id },
  content: { execution_state }
});

function heard(...messages) {
  const changes = [];
  const requests = new OwnRequests((msgId, pending) => changes.push(`${msgId} ${pending}`));
  requests.sent(request('a'));
  messages.forEach(message => requests.received(message));
  return [changes, requests];
}

test('a request ends with its reply and its idle, in any order', () => {
  assert.deepEqual(heard(status('a', 'busy'), reply('a'))[0], ['a true']);
  assert.deepEqual(heard(reply('a'), status('a', 'idle'))[0], ['a true', 'a false']);
  assert.deepEqual(heard(status('a', 'idle'), status('a', 'idle'), reply('a'), reply('a'))[0], ['a true', 'a false']);
  assert.deepEqual(heard(reply('b'), status('b', 'idle'))[0], ['a true']);
  assert.ok(heard(reply('a'))[1].has('a') && !heard(reply('a'), status('a', 'idle'))[1].has('a'));
});

test('a restart ends all of them', () => {
  const [changes, requests] = heard();
  requests.sent(request('b'));
  requests.clear();
  requests.received(reply('a'));
  requests.received(status('a', 'idle'));
  assert.deepEqual(changes, ['a true', 'b true', 'a false', 'b false']);
});
