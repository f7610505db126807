import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { once } from 'node:events';
import { after, beforeEach, test } from 'node:test';

import { HubClient, HubError } from '../src/hub/client.js';
import type { Answer } from '../src/hub/client.js';
import { FrameSocket } from '../src/hub/frames.js';
import { PlayedHub } from './playedHub.js';
import { until } from './vscode.js';

let hub: PlayedHub;
const hubs: PlayedHub[] = [];
beforeEach(async () => {
  hub = await PlayedHub.start();
  hubs.push(hub);
});
after(() => Promise.all(hubs.map(one => one.stop())));

const connect = (): Promise<HubClient> => HubClient.connect(hub.address, hub.keyFile);

test('a call has its result, and calls do not mix', async () => {
  const held: (() => void)[] = [];
  hub.answer = ({ id, op }, send) => held.push(() => send({ id, result: op }));
  const client = await connect();
  const results = [client.call('first', { kernel: 'k' }), client.call('second')];
  await until(() => held.length === 2);
  held.reverse().forEach(send => send());
  assert.deepEqual(await Promise.all(results), ['first', 'second']);
  assert.deepEqual(hub.received[0], { kernel: 'k', id: 1, op: 'first', asks: false });
  client.close();
});

test('an error has the cause, the hop and the remedy, which are inert', async () => {
  hub.answer = ({ id }, send) => send({ id, error: { cause: '[x](command:y) failed', hop: 'gpu2', remedy: 'Wait.', login: true } });
  const client = await connect();
  await assert.rejects(client.call('login'), (error: HubError) => {
    assert.equal(error.message, 'gpu2: [x] (command:y) failed. Wait.');
    return error.problem.login === true;
  });
  client.close();
});

test('a large message comes whole', async () => {
  hub.answer = ({ id }, send) => send({ id, result: 'x'.repeat(3_000_000) });
  const client = await connect();
  assert.equal(((await client.call('journal')) as string).length, 3_000_000);
  client.close();
});

test('a question is answered, once', async () => {
  hub.answer = ({ id, op, answer, value }, send) =>
    op ? send({ id, ask: { kind: 'secret', hop: 'login' }, question: 7 }) : send({ id: 1, result: [answer, value] });
  const client = await connect();
  const ask = async (question: object): Promise<Answer> => {
    assert.deepEqual(question, { kind: 'secret', hop: 'login' });
    return { value: 'secret' };
  };
  assert.deepEqual(await client.call('login', {}, { ask }), [7, 'secret']);
  client.close();
});

test('a cancelled question tells the hub so', async () => {
  hub.answer = ({ id, op, cancelled }, send) => (op ? send({ id, ask: {}, question: 1 }) : send({ id: 1, result: cancelled }));
  const client = await connect();
  assert.equal(await client.call('login', {}, { ask: async () => 'cancel' }), true);
  client.close();
});

test('the end of a call closes its question', async () => {
  hub.answer = ({ id, op }, send) => {
    if (op) {
      send({ id, ask: {}, question: 1 });
      send({ id, result: 'connected elsewhere' });
    }
  };
  const client = await connect();
  let closed = false;
  const ask = (_: object, signal: AbortSignal): Promise<Answer> =>
    new Promise(resolve => signal.addEventListener('abort', () => resolve(((closed = true), null))));
  assert.equal(await client.call('login', {}, { ask }), 'connected elsewhere');
  await until(() => closed);
  client.close();
});

test('a call whose signal was aborted before is not sent', async () => {
  const client = await connect();
  await assert.rejects(client.call('login', {}, { signal: AbortSignal.abort() }), /cancelled/);
  await client.call('ps');
  assert.deepEqual(hub.received.map(one => one.op), ['ps']);
  client.close();
});

test('a hub that ends fails all calls, and later ones', async () => {
  hub.answer = () => undefined;
  const client = await connect();
  const call = client.call('ps');
  await until(() => hub.received.length === 1);
  hub.hangUp();
  await assert.rejects(call, /ended/);
  assert.equal(client.closed, true);
  await assert.rejects(client.call('ps'), /ended/);
});

test('whoever does not have the key gets nothing', async () => {
  await writeFile(hub.keyFile, Buffer.alloc(32));
  await assert.rejects(connect());
  assert.deepEqual(hub.received, []);
});

test('a listener that does not have the key gets no call', async () => {
  const other = await PlayedHub.start();
  hubs.push(other);
  await assert.rejects(HubClient.connect(other.address, hub.keyFile));
});

test('a message of a wrong length ends the connection', async () => {
  for (const header of [Buffer.from([0xff, 0xff, 0xff, 0xff]), Buffer.from([0x7f, 0xff, 0xff, 0xff])]) {
    const socket = createConnection(hub.address);
    await once(socket, 'connect');
    const frames = new FrameSocket(socket);
    const theirs = await frames.receive();
    const ours = Buffer.alloc(32);
    frames.send(Buffer.concat([ours, createHmac('sha256', 'wrong').update('client').update(theirs).update(ours).digest()]));
    socket.write(header);
    await assert.rejects(frames.receive());
  }
});
