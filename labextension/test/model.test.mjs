import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RemoteModel } from '../lib/model/model.js';

const kernel = { id: 'k1', kernel_id: 'j1', name: 'gpu2', node: 'gpu2', state: 'idle', link: 'up', gpus: [] };
const detached = { ...kernel, id: 'k2', kernel_id: null, state: 'detached' };
const overview = { time: 1, nodes: [], kernels: [kernel, detached] };
const PROBLEM = { kind: 'unreachable', message: 'no server' };

/** A server that counts requests; each may be held back until `release`, or fail. */
class Server {
  constructor(t) {
    this.requests = [];
    this.error = null;
    this.held = null;
    this.asked = new Promise(resolve => (this.wasAsked = resolve));
    this.model = new RemoteModel({
      fetchKernels: useOf => this.reply(['kernels', ...useOf].join(' '), [kernel]),
      fetchOverview: () => this.reply('overview', overview),
      problemOf: error => ({ ...PROBLEM, kind: error.message }),
      interval: 20
    });
    t.after(() => this.model.dispose());
  }

  async reply(what, value) {
    this.requests.push(what);
    this.wasAsked();
    await this.held;
    if (this.error) {
      throw new Error(this.error);
    }
    return value;
  }

  hold() {
    this.held = new Promise(resolve => {
      this.release = () => {
        this.held = null;
        resolve();
      };
    });
  }

  changed() {
    return new Promise(resolve => {
      const slot = () => {
        this.model.changed.disconnect(slot);
        resolve();
      };
      this.model.changed.connect(slot);
    });
  }
}

test('nobody watches: no request', async t => {
  const { model, requests } = new Server(t);
  await model.refresh();
  model.watchKernels().dispose();
  model.watchOverview().dispose();
  await new Promise(resolve => setTimeout(resolve, 60)); // three intervals
  assert.deepEqual(requests, []);
  assert.equal(model.overview, null);
});

test('two who watch cause the requests of one, until both have left', async t => {
  const server = new Server(t);
  const watches = [server.model.watchKernels(), server.model.watchKernels()];
  await server.changed();
  assert.deepEqual(server.requests, ['kernels']);
  assert.deepEqual(server.model.kernels, [kernel]);
  watches[0].dispose();
  watches[0].dispose(); // again: no effect
  await server.changed();
  watches[1].dispose();
  const count = server.requests.length;
  await server.model.refresh();
  assert.equal(server.requests.length, count);
});

test('while somebody watches the overview, it is requested instead, and feeds both', async t => {
  const server = new Server(t);
  server.model.watchKernels();
  const watch = server.model.watchOverview();
  await server.changed();
  assert.deepEqual(server.requests, ['overview']);
  assert.deepEqual(server.model.kernels, [kernel, detached]);
  assert.equal(server.model.overview, overview);
  watch.dispose();
  await server.changed();
  assert.equal(server.requests.at(-1), 'kernels');
  assert.deepEqual(server.model.kernels, [kernel]);
});

test('the use of the GPUs of a kernel is requested as long as somebody watches it, and once for all', async t => {
  const server = new Server(t);
  const [plain, ...used] = [server.model.watchKernels(), ...['j1', 'j1', 'j2'].map(id => server.model.watchKernels(id))];
  await server.model.refresh();
  assert.equal(server.requests.at(-1), 'kernels j1 j2');
  used[0].dispose();
  used[0].dispose(); // again: no effect
  used[2].dispose();
  await server.model.refresh();
  assert.equal(server.requests.at(-1), 'kernels j1');
  used[1].dispose();
  await server.model.refresh();
  assert.equal(server.requests.at(-1), 'kernels');
  plain.dispose();
  const count = server.requests.length;
  await server.model.refresh();
  assert.equal(server.requests.length, count);
});

test('a refresh during a request causes one more, since the first may have come too early', async t => {
  const server = new Server(t);
  server.hold();
  server.model.watchKernels();
  await server.asked;
  const both = Promise.all([server.model.refresh(), server.model.refresh()]);
  server.release();
  await both;
  assert.deepEqual(server.requests, ['kernels', 'kernels']);
});

test('a failure keeps what was known, and says why; a success clears it', async t => {
  const server = new Server(t);
  server.model.watchKernels();
  await server.changed();
  server.error = 'unreachable';
  await server.model.refresh();
  assert.equal(server.model.problem.kind, 'unreachable');
  assert.deepEqual(server.model.kernels, [kernel]);
  server.error = null;
  await server.model.refresh();
  assert.equal(server.model.problem, null);
});

test('without the server extension there is one request only', async t => {
  const server = new Server(t);
  server.error = 'missing';
  server.model.watchKernels();
  await server.changed();
  await server.model.refresh();
  server.model.watchOverview();
  await server.model.refresh();
  assert.deepEqual(server.requests, ['kernels']);
});

test('disposed: pending refreshes resolve, and nothing is requested', async t => {
  const server = new Server(t);
  server.hold();
  const watch = server.model.watchKernels();
  const refreshed = server.model.refresh();
  server.model.dispose();
  server.release();
  await refreshed;
  watch.dispose();
  assert.ok(server.model.isDisposed && server.requests.length <= 1);
});
