import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';

import services from '@jupyterlab/services';

import { answerOf, get, isNotFound, kernelPath, post, problemOf, remove } from '../lib/request.js';

const { ServerConnection } = services;

/** A server that replies as `reply(request, response)` does. */
async function serving(t, reply) {
  const server = createServer(reply);
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  return ServerConnection.makeSettings({ baseUrl: `http://127.0.0.1:${server.address().port}/` });
}

test('an answer is read, and the method is as asked', async t => {
  const settings = await serving(t, (request, response) => response.end(JSON.stringify([request.method, request.url.replace(/[?&]\d+$/, '')])));
  assert.deepEqual(await get(settings, 'api/a?b=c'), ['GET', '/api/a?b=c']);
  assert.deepEqual(await post(settings, 'a', {}), ['POST', '/a']);
  assert.deepEqual(await post(settings, 'a', {}, Infinity), ['POST', '/a']);
  assert.deepEqual(await remove(settings, 'a'), ['DELETE', '/a']);
});

test('a server that does not reply is out of reach after the limit, also if it stops in the middle', { timeout: 10_000 }, async t => {
  const silent = await serving(t, () => undefined);
  await assert.rejects(get(silent, 'a', 0.05), ServerConnection.NetworkError);
  await assert.rejects(post(silent, 'a', {}, 0.05), ServerConnection.NetworkError);
  const halting = await serving(t, (_, response) => void response.write('{"a":'));
  await assert.rejects(get(halting, 'a', 0.5), ServerConnection.NetworkError);
});

test('a refusal has the message, and all that the server said can still be read', async t => {
  const said = { message: 'login: no route', error: { hop: 'login', cause: 'no route', remedy: 'Wait.' } };
  const settings = await serving(t, (_, response) => response.writeHead(502).end(JSON.stringify(said)));
  const error = await get(settings, 'a').catch(reason => reason);
  assert.ok(error instanceof ServerConnection.ResponseError);
  assert.deepEqual([error.message, error.response.status], ['login: no route', 502]);
  assert.deepEqual(await error.response.json(), said);
});

test('a refusal as the error that the server describes', async t => {
  const said = { message: 'login: no route', error: { hop: 'login', cause: 'no route', remedy: 'Wait.' }, field: 'jumps' };
  const settings = await serving(t, (_, response) => response.writeHead(404).end(JSON.stringify(said)));
  const error = await get(settings, kernelPath('a/b', 'journal')).catch(reason => reason);
  assert.ok(isNotFound(error) && !isNotFound(new Error('404')));
  assert.deepEqual([await problemOf(error), (await answerOf(error)).field], [said.error, 'jumps']);
});

test('a refusal that the server does not describe', async t => {
  const proxy = await serving(t, (_, response) => response.writeHead(504).end('<h1>Gateway</h1>'));
  const terse = await serving(t, (_, response) => response.writeHead(400).end('{"message": "no such kernel"}'));
  const causes = [];
  for (const settings of [proxy, terse]) {
    const error = await get(settings, 'a').catch(reason => reason);
    causes.push((await problemOf(error)).cause);
  }
  assert.deepEqual(causes, ['Invalid response: 504 Gateway Timeout', 'no such kernel']);
  assert.equal((await problemOf(new Error('out of reach'))).cause, 'out of reach');
  assert.deepEqual(await answerOf('nobody'), {});
});

test('what a proxy says is no message', async t => {
  const settings = await serving(t, (_, response) => response.writeHead(504).end('<h1>Gateway</h1>'));
  const error = await get(settings, 'a').catch(reason => reason);
  assert.ok(error instanceof ServerConnection.ResponseError);
  assert.match(error.message, /504/);
});
