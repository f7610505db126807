import assert from 'node:assert/strict';
import { test } from 'node:test';

import services from '@jupyterlab/services';

import { JournalPoll } from '../lib/outputs/journalPoll.js';

const journal = { kernel: 'k', cells: [] };

/** An error response of the server. */
const refusal = status => new services.ServerConnection.ResponseError(new Response(null, { status }));

/**
 * The requests of one poll, whose cells that have not ended are `running`. The test replies to each of them, and lets
 * the time pass; `log` has all that happened.
 */
class Requests {
  constructor(...running) {
    this.log = [];
    this.running = running;
    this.isUp = true;
    this.time = 0;
    this.onTake = () => undefined;
    const next = (what, entry) => {
      this.log.push(entry);
      return new Promise((resolve, reject) => (this[what] = { resolve, reject }));
    };
    this.poll = new JournalPoll({
      kernelId: 'j1',
      source: { mayAnswer: () => this.isUp, fetch: (kernelId, cellId) => next('request', `${kernelId} ${cellId || 'all'}`) },
      next: () => (this.hasAll ? this.running[0] : undefined),
      take: (_, asked) => {
        this.log.push(`took ${asked ?? 'all'}`);
        this.hasAll = true;
        this.onTake(asked);
      },
      onNotFound: () => this.log.push('not found'),
      clock: { now: () => this.time, wait: time => next('pause', time) }
    });
  }

  /** What has happened since the last call. */
  async happened() {
    await new Promise(setImmediate);
    return this.log.splice(0);
  }

  /** Replies after `took` milliseconds. Returns what happens then. */
  async reply(took = 0) {
    this.time += took;
    this.request.resolve(journal);
    return this.happened();
  }

  async refuse(error) {
    this.request.reject(error);
    return this.happened();
  }

  /** Lets the time until the next request pass. Returns what happens then. */
  async pass() {
    this.pause.resolve();
    return this.happened();
  }
}

/** Whether nothing more is requested. */
async function hasEnded(requests) {
  return (await requests.pass()).length === 0;
}

test('without a cell that runs, the journal is requested once', async () => {
  const requests = new Requests();
  assert.deepEqual(await requests.happened(), ['j1 all']);
  assert.equal((await requests.reply())[0], 'took all');
  assert.ok(await hasEnded(requests));
});

test('cells that run are requested one after the other, until all have ended', async () => {
  const requests = new Requests('a', 'b');
  await requests.happened();
  assert.deepEqual(await requests.reply(), ['took all', 1000]);
  assert.deepEqual(await requests.pass(), ['j1 a']);
  assert.deepEqual(await requests.reply(), ['took a', 1000], 'it still runs');
  await requests.pass();
  requests.onTake = () => requests.running.shift();
  assert.deepEqual(await requests.reply(), ['took a', 'j1 b'], 'the next one at once');
  assert.equal((await requests.reply())[0], 'took b');
  assert.ok(await hasEnded(requests));
});

test('a reply that comes after the end is not used, nor a refusal', async () => {
  for (const end of ['reply', 'refuse']) {
    const requests = new Requests('a');
    await requests.happened();
    for (let count = 0; count < 4; count++) {
      await requests.refuse(refusal(404));
      await requests.pass();
    }
    requests.poll.dispose();
    const happened = await requests[end](refusal(404));
    assert.ok(!happened.some(each => typeof each === 'string'), `${happened}`);
    assert.ok(await hasEnded(requests));
  }
});

test('requests are less frequent if they take long, or if the cell runs for long', async () => {
  const requests = new Requests('a');
  await requests.happened();
  assert.deepEqual(await requests.reply(500), ['took all', 2500]);
  await requests.pass();
  assert.deepEqual(await requests.reply(100), ['took a', 1000]);
  await requests.pass();
  assert.deepEqual(await requests.reply(60_000), ['took a', 30_000], 'the longest');
  requests.time = 120_000;
  await requests.pass();
  assert.deepEqual(await requests.reply(), ['took a', 2000]);
  requests.time = 1e9;
  await requests.pass();
  assert.deepEqual(await requests.reply(), ['took a', 5000]);
});

test('a refused request is repeated, less and less often, until one succeeds', async () => {
  const requests = new Requests('a');
  await requests.happened();
  const pauses = [];
  for (let count = 0; count < 7; count++) {
    pauses.push(...(await requests.refuse(refusal(502))));
    assert.deepEqual(await requests.pass(), ['j1 all']);
  }
  assert.deepEqual(pauses, [2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
  assert.deepEqual(await requests.reply(), ['took all', 1000]);
});

test('a journal that cannot be shown is requested again', async () => {
  const requests = new Requests();
  requests.onTake = () => {
    throw new Error('no such cell');
  };
  await requests.happened();
  assert.deepEqual(await requests.reply(), ['took all', 2000]);
  assert.deepEqual(await requests.pass(), ['j1 all']);
});

test('a kernel that is not found five times has no journal', async () => {
  const requests = new Requests();
  await requests.happened();
  for (let count = 0; count < 4; count++) {
    assert.equal((await requests.refuse(refusal(404))).length, 1);
    await requests.pass();
  }
  assert.equal((await requests.refuse(refusal(404)))[0], 'not found');
  assert.ok(await hasEnded(requests));
});

test('nothing is requested while the link is down', async () => {
  const requests = new Requests();
  requests.isUp = false;
  assert.deepEqual(await requests.happened(), [1000]);
  assert.deepEqual(await requests.pass(), [1000]);
  requests.isUp = true;
  assert.deepEqual(await requests.pass(), ['j1 all']);
  assert.deepEqual(await requests.refuse(refusal(502)), [2000], 'it is down, which is not known yet');
  requests.isUp = false;
  assert.deepEqual(await requests.pass(), [1000], 'soon after the link is up again');
});

test('the first request is made when the page is ready', async () => {
  let begin;
  const log = [];
  const source = { mayAnswer: () => true, fetch: async () => (log.push('asked'), journal) };
  const ready = new Promise(resolve => (begin = resolve));
  const clock = { now: () => 0, wait: async () => undefined };
  const taken = new Promise(take => new JournalPoll({ source, kernelId: 'j1', ready, next: () => undefined, take, clock }));
  await new Promise(setImmediate);
  assert.deepEqual(log, []);
  begin();
  assert.equal(await taken, journal);
});
