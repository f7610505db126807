import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { isConnected, refusing, SignIn } from '../lib/signIn/signIn.js';
import { isOurs, ourSpec } from '../lib/specs.js';

const ours = { jupyter_gpu_kernel: {} };
const specs = {
  kernelspecs: {
    python3: { name: 'python3', display_name: 'Remote GPU (gpu2)' },
    gpu2: { name: 'gpu2', display_name: 'Remote GPU (gpu2)', metadata: ours },
    gpu3: { name: 'gpu3', display_name: 'Remote GPU (gpu3)', metadata: ours }
  }
};
const problem = { kind: 'AuthError', hop: 'login', cause: 'asks for a code', remedy: '', login: true };
const shut = { node: 'work', names: ['gpu2'], connected: false, problem, program: '/bin/jupyter-gpu-kernel' };
const open = { ...shut, connected: true, problem: null };

test('our kernelspecs are told from others, by either name', () => {
  assert.equal(ourSpec(specs, 'Remote GPU (gpu2)'), 'gpu2');
  assert.equal(ourSpec(specs, 'Python 3'), undefined);
  assert.equal(ourSpec(null, 'Remote GPU (gpu2)'), undefined);
  assert.ok(isOurs(specs, { name: 'gpu3' }));
  assert.ok(!isOurs(specs, { name: 'python3' }) && !isOurs(specs, { name: 'nope' }) && !isOurs(null, { name: 'gpu3' }));
});

test('a node refuses a kernelspec that led there, while only a login would help', () => {
  assert.equal(refusing([open, shut], 'gpu2'), shut);
  assert.equal(refusing([shut], 'gpu3'), undefined);
  assert.equal(refusing([{ ...shut, connected: true }], 'gpu2'), undefined);
  assert.equal(refusing([{ ...shut, problem: { ...problem, login: false } }], 'gpu2'), undefined);
  assert.equal(refusing([{ ...shut, names: undefined }], 'gpu2'), undefined); // a hub of an older release
  assert.ok(isConnected([shut, open], 'gpu2') && !isConnected([shut], 'gpu2') && !isConnected([open], 'gpu3'));
});

/** A session context whose starts go as `start` says; the nodes are as `nodes` says. */
class Page {
  constructor() {
    this.session = null;
    this.kernelDisplayName = 'Remote GPU (gpu2)';
    this.kernelPreference = { language: 'python' };
    this.statusChanged = new Signal(this);
    this.disposed = new Signal(this);
    this.nodes = [shut];
    this.log = [];
    this.waiting = [];
    this.signIn = new SignIn({
      sessionContext: this,
      specs: () => specs,
      fetch: async () => this.said('asked') ?? this.nodes,
      tell: (node, name) => {
        this.said(`told ${node.node} ${name}`);
        return () => this.said('taken back');
      },
      preselect: name => this.said(`preselects ${name}`),
      interval: 1
    });
  }

  async changeKernel({ name }) {
    this.said(`start ${name}`);
    this.refused();
    throw new Error('refused');
  }

  refused(displayName = this.kernelDisplayName) {
    this.kernelDisplayName = displayName;
    this.statusChanged.emit('starting');
    this.statusChanged.emit('unknown');
  }

  has(kernel, status) {
    this.session = { kernel };
    this.statusChanged.emit(status);
  }

  said(what) {
    this.log.push(what);
    this.waiting.filter(each => each.what === what).forEach(each => each.done());
  }

  /** Until it is said `times` more times. */
  async until(what, times = 1) {
    for (; times > 0; times--) {
      await new Promise(done => this.waiting.push({ what, done }));
    }
  }

  get story() {
    return this.log.filter(what => what !== 'asked');
  }
}

test('a refused start is made once more when its user has signed in', async () => {
  const page = new Page();
  page.refused();
  await page.until('told work gpu2');
  await page.until('asked', 3);
  assert.deepEqual(page.story, ['told work gpu2']);
  page.nodes = [open];
  await page.until('start gpu2');
  await page.until('asked'); // it was refused again, although there is a connection: for another reason
  page.refused('Python 3');
  assert.deepEqual(page.story, ['told work gpu2', 'taken back', 'start gpu2']);
  page.signIn.dispose();
});

test('a start that was refused for another reason is not made again', async () => {
  const page = new Page();
  page.nodes = [{ ...shut, problem: { ...problem, login: false } }];
  page.refused();
  await page.until('asked');
  page.nodes = [shut];
  page.refused('Remote GPU (gpu3)');
  await page.until('asked');
  page.nodes = [open];
  page.refused('Python 3');
  assert.deepEqual(page.story, []);
  page.signIn.dispose();
});

test('whoever has chosen another kernel meanwhile keeps it', async () => {
  const page = new Page();
  page.refused();
  await page.until('told work gpu2');
  page.has({ name: 'python3' }, 'idle');
  page.nodes = [open];
  assert.deepEqual(page.story, ['told work gpu2', 'taken back']);
  page.has({ name: 'python3' }, 'dead');
  page.signIn.dispose();
  assert.deepEqual(page.story, ['told work gpu2', 'taken back']);
});

test('a launcher that was refused is started again, too', async () => {
  const page = new Page();
  page.has({ name: 'gpu2' }, 'dead');
  await page.until('told work gpu2');
  page.nodes = [open];
  await page.until('start gpu2');
  page.signIn.dispose();
});

test('what goes takes back what it told', async () => {
  const page = new Page();
  page.refused();
  await page.until('told work gpu2');
  page.disposed.emit();
  assert.deepEqual(page.story, ['told work gpu2', 'taken back']);
});

test('a start of another page that its user cancels here is told in the page of its notebook', async () => {
  const page = new Page();
  page.path = 'work/a.ipynb';
  page.signIn.cancelled('gpu2', 'other.ipynb');
  page.nodes = []; // the start has not failed yet
  page.signIn.cancelled('gpu2', 'work/a.ipynb');
  assert.deepEqual([page.kernelPreference, page.story], [{ language: 'python', name: 'gpu2' }, ['preselects gpu2']]);
  await page.until('asked');
  page.nodes = [shut];
  await page.until('told work gpu2');
  page.nodes = [open];
  await page.until('start gpu2');
  page.signIn.dispose();
});
