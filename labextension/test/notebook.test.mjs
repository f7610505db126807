import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { Follower } from '../lib/notebook/follower.js';
import { parseStatus, rowsOfKernel, rowsOfStatus } from '../lib/notebook/gpuRows.js';
import { noticeOf } from '../lib/notebook/noticeText.js';
import { beginSearch, continueSearch, offered, offerText } from '../lib/notebook/offer.js';
import { clock } from '../lib/format.js';
import { trans } from './trans.mjs';

const NOW = 1_800_000_000;
const row = { id: 'k1', kernel_id: 'j1', name: 'gpu2', node: 'gpu2', state: 'busy', link: 'up', gpus: [] };

test('a kernel that can be reached has no notice', () => {
  assert.equal(noticeOf(row, null, NOW, trans, true), null);
  assert.equal(noticeOf({ ...row, link: 'away', state: 'ended' }, null, NOW, trans, true), null);
});

test('the notice says since when the node is out of reach, and what becomes of the cell', () => {
  const away = { ...row, link: 'away', away_since: NOW };
  const since = clock(NOW, true);
  assert.deepEqual(noticeOf(away, null, NOW + 9, trans, true), {
    text: `gpu2 has been out of reach since ${since}; the kernel keeps running. This cell keeps running.`,
    detail: '',
    signIn: false
  });
  const listed = noticeOf({ ...away, state: 'away', busy_since: NOW }, null, NOW, trans, true); // in the overview
  assert.match(listed.text, /This cell keeps running/);
  assert.match(noticeOf({ ...away, state: 'idle' }, null, NOW, trans, true).text, /will run when the node is back/);
  const error = { kind: 'AuthError', hop: 'login', cause: 'it wants a code', remedy: 'Sign in.' };
  const refused = noticeOf({ ...away, error }, null, NOW, trans, true);
  assert.deepEqual([refused.detail, refused.signIn], ['login: it wants a code.', true]);
});

test('the page says itself that it cannot reach the server, but not for a moment only', () => {
  assert.equal(noticeOf(row, NOW, NOW + 1, trans, true), null);
  assert.match(noticeOf(row, NOW, NOW + 5, trans, true).text, /browser has not reached the Jupyter server since .*gpu2 keeps running/);
});

test('the kernel that the notebook had is offered, or else one that it had left', () => {
  const had = { name: 'gpu2', row: { id: 'k1' } };
  const [free, other] = [
    { ...row, kernel_id: null, attached: false, state: 'detached' },
    { ...row, id: 'k2', kernel_id: null, attached: false, path: 'a.ipynb' }
  ];
  assert.equal(offered([other, free], had, 'a.ipynb'), free);
  assert.equal(offered([other], had, 'a.ipynb'), other);
  assert.equal(offered([other], had, 'b.ipynb'), null);
  assert.equal(offered([free], { ...had, name: 'gpu3' }, 'a.ipynb'), null);
  for (const taken of [{ attached: true }, { kernel_id: 'j2' }, { state: 'ended' }]) {
    assert.equal(offered([{ ...free, ...taken }], had, 'b.ipynb'), null);
  }
  assert.equal(offerText(free, NOW, trans), 'The kernel is still running on gpu2.');
  assert.match(offerText({ ...free, busy_since: NOW - 180 }, NOW, trans), /busy for 3 min/);
});

test('the kernel is looked for in overviews from after the end of the server, and not for ever', () => {
  const had = { name: 'gpu2', row: { id: 'k1' } };
  const free = { ...row, kernel_id: null, attached: false };
  const [before, without, after] = [[free], [], [free]].map(kernels => ({ time: NOW, nodes: [], kernels }));
  const next = (search, overview) => continueSearch(search, overview, had, 'a.ipynb');
  const begun = beginSearch(before);
  assert.equal(begun.found, null);
  assert.equal(next(next(begun, before), null), begun);
  assert.equal(next(begun, after).found, free);
  assert.equal(next(beginSearch(null), before).found, free);
  const missed = next(begun, without);
  assert.deepEqual([missed.found, missed.left, next(missed, without)], [null, begun.left - 1, missed]);
  assert.deepEqual([next(missed, after).left, next(next(missed, after), without).found], [missed.left, null]);
  let [search, overviews] = [begun, 0];
  for (; search.left > 0; overviews++) {
    search = next(search, { ...without });
  }
  assert.equal(overviews, 20);
});

/** A notebook whose kernel is ours, and a follower of it; `tried` resolves at each attempt to reach the server. */
class Stage {
  constructor() {
    const context = {};
    for (const name of ['iopubMessage', 'sessionChanged', 'kernelChanged', 'connectionStatusChanged', 'statusChanged', 'disposed']) {
      context[name] = new Signal(context);
    }
    this.kernel = { id: 'j1', name: 'gpu2', connectionStatus: 'connected', reconnect: async () => this.connect() };
    context.session = { kernel: this.kernel };
    this.watchers = 0;
    const model = { kernels: [row], problem: null, refresh: async () => undefined };
    model.changed = new Signal(model);
    model.watchKernels = () => ((this.watchers += 1), { dispose: () => (this.watchers -= 1) });
    this.tried = new Promise(resolve => (this._tried = resolve));
    [this.context, this.model] = [context, model];
    this.follower = new Follower({
      sessionContext: context,
      model,
      isOurs: kernel => kernel.name === 'gpu2',
      reachServer: async () => this._tried(),
      now: () => NOW,
      interval: 1
    });
  }

  connect(status = 'connected') {
    this.kernel.connectionStatus = status;
    this.context.connectionStatusChanged.emit(status);
  }

  loseSession() {
    this.context.session = null;
    this.context.sessionChanged.emit({});
  }
}

// Node has no page.
globalThis.document ??= { hidden: false, addEventListener() {} };
globalThis.requestAnimationFrame ??= setImmediate;
globalThis.cancelAnimationFrame ??= clearImmediate;

test('a message of a kernel that was out of reach asks for its state at once, and then not again for a second', () => {
  const stage = new Stage();
  let requests = 0;
  stage.model.refresh = async () => void (requests += 1);
  stage.context.iopubMessage.emit({});
  assert.equal(requests, 0);
  stage.model.kernels = [{ ...row, link: 'away' }];
  stage.model.changed.emit();
  stage.context.iopubMessage.emit({});
  stage.context.iopubMessage.emit({});
  assert.equal(requests, 1);
  stage.follower.dispose();
});

test('a change of the state of a kernel of ours asks for it soon: once for several, and also during a request', async () => {
  const stage = new Stage();
  let requests = 0;
  for (const count of [1, 2]) {
    await new Promise(asked => {
      stage.model.refresh = () => ((requests += 1), setImmediate(asked), new Promise(() => undefined)); // no response
      ['busy', 'idle'].forEach(status => stage.context.statusChanged.emit(status));
      stage.connect();
    });
    assert.equal(requests, count);
  }
  stage.follower.dispose();
});

test('a connection that was lost is made again when the server is back', async () => {
  const stage = new Stage();
  assert.deepEqual([stage.follower.kernel, stage.follower.serverAwaySince, stage.watchers], [{ name: 'gpu2', row }, null, 1]);
  stage.connect('disconnected');
  assert.equal(stage.follower.serverAwaySince, NOW);
  await stage.tried;
  await new Promise(resolve => stage.follower.changed.connect(() => stage.follower.serverAwaySince === null && resolve()));
  assert.equal(stage.follower.isLost, false);
  stage.follower.dispose();
  assert.equal(stage.watchers, 0);
});

test('a kernel that the server has lost is remembered; one that its user has shut down is not', () => {
  const lost = new Stage();
  lost.connect('connecting');
  lost.loseSession();
  assert.deepEqual([lost.follower.isLost, lost.follower.kernel.row, lost.watchers], [true, row, 0]);
  lost.follower.dispose();
  const ended = new Stage();
  ended.loseSession();
  assert.deepEqual([ended.follower.isLost, ended.follower.kernel], [false, null]);
  ended.follower.dispose();
});

test('other kernels are none of its business, and a notebook that is being opened is not out of reach', () => {
  const stage = new Stage();
  stage.kernel.name = 'python3';
  stage.context.kernelChanged.emit({});
  assert.deepEqual([stage.follower.kernel, stage.watchers], [null, 0]);
  Object.assign(stage.kernel, { name: 'gpu2', connectionStatus: 'connecting' });
  stage.context.kernelChanged.emit({});
  assert.equal(stage.follower.serverAwaySince, null);
  stage.follower.dispose();
});

test('the status of the kernel as rows: of one line, of limited length', () => {
  const status = { id: 'k1', pid: 7, gpu_names: ['GPU 0 (A100)'], guard: 'on', placement: `a\n\u202eb${'x'.repeat(999)}` };
  const answer = value => `'${Buffer.from(JSON.stringify(value)).toString('hex')}'`;
  const rows = new Map(rowsOfStatus(parseStatus(answer({ ...status, memory: { gpu_used_mib: 1024, gpu_total_mib: 24576 } })), NOW, trans));
  assert.equal(rows.get('GPUs'), 'GPU 0 (A100)');
  assert.equal(rows.get('GPU memory in use'), '1 of 24 GiB');
  assert.equal(rows.get('Kernel'), 'k1, process 7');
  assert.match(rows.get('Chosen host'), /^a \?bx{200,300}…$/);
  assert.equal(rows.has('Slurm job'), false);
  const job = { id: '12', partition: 'gpu', end_time: NOW + 7200 };
  assert.match(new Map(rowsOfStatus({ job }, NOW, trans)).get('Time left'), /^2 h 0 min \(until /);
});

test('an answer that is no status', () => {
  for (const answer of [undefined, 7, '', "'7b'", "'zz'", `'${Buffer.from('[1]').toString('hex')}'`, "{'a': 1}"]) {
    assert.equal(parseStatus(answer), null);
  }
  assert.deepEqual(rowsOfStatus({ memory: [], gpus: 'x', job: 3, id: {} }, NOW, trans)[0], ['GPUs', 'none; the first cell takes them']);
});

test('what the hub knows of a kernel that is busy', () => {
  const rows = new Map(rowsOfKernel({ ...row, busy_since: NOW - 60 }, [], NOW, trans));
  assert.deepEqual([rows.get('State'), rows.get('Node'), rows.get('Link')], ['busy (for 1 min)', 'gpu2', 'up']);
  const uses = [{ processes: [{ user: 'bob', memory_mib: 12288, mine: false }] }];
  assert.equal(new Map(rowsOfKernel(row, uses, NOW, trans)).get('Who uses them'), 'bob 12 GiB');
});
