import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, beforeEach, test } from 'node:test';

import { Hub } from '../src/hub/hub.js';
import { PlayedHub } from './playedHub.js';
import { program } from './programs.js';
import { until } from './vscode.js';

let played: PlayedHub;
let hub: Hub;
let path: string;
const all: PlayedHub[] = [];
beforeEach(async () => {
  played = await PlayedHub.start();
  all.push(played);
  const place = { protocol: 1, address: played.address, key: played.keyFile, sign_ins: played.folder };
  path = await program(`echo >> "$0-calls"; echo '${JSON.stringify(place)}'`);
  hub = new Hub(async () => ({ program: path, names: new Set() }));
});
after(() => Promise.all(all.map(one => one.stop())));

test('calls that come at once have one connection', async () => {
  assert.deepEqual(await Promise.all([hub.call('ps'), hub.call('kernels', {}, { start: false }), hub.call('gpus')]), ['ps', 'kernels', 'gpus']);
  assert.equal(played.connections, 1);
  hub.disconnect();
  await until(() => played.connections === 0);
  assert.equal(await hub.call('nodes'), 'nodes');
  hub.disconnect();
});

test('a call that starts no hub does not ask our program, which would start one', async () => {
  await assert.rejects(hub.call('kernels', {}, { start: false }), /does not run/);
  assert.equal(existsSync(`${path}-calls`), false);
  const both = [hub.call('kernels', {}, { start: false }), hub.call('ps')];
  await assert.rejects(both[0]!);
  assert.equal(await both[1], 'ps');
  hub.disconnect();
});

test('the connection closes once the last open call has ended', async () => {
  const held: (() => void)[] = [];
  played.answer = ({ id, op }, send) => held.push(() => send({ id, result: op }));
  const both = [hub.call('login'), hub.call('ps')];
  await until(() => held.length === 2);
  hub.release();
  held[1]!();
  assert.equal(await both[1], 'ps');
  assert.equal(played.connections, 1);
  held[0]!();
  assert.equal(await both[0], 'login');
  await until(() => played.connections === 0);
});
