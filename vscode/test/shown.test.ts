import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import type { Hub } from '../src/hub/hub.js';
import type { Model } from '../src/model.js';
import { kernelOf, kernelspecOf } from '../src/notebooks.js';
import { noticeFor, Notices } from '../src/notices.js';
import type { SignIn } from '../src/signIn.js';
import { StatusBar } from '../src/statusBar.js';
import { rowsOf } from '../src/tree.js';
import type { INodeOverview } from '../src/shared/words.js';
import { kernel, notebook, NOW, row } from './rows.js';
import { EventEmitter, Uri, until, user, window, workspace } from './vscode.js';

class PlayedModel {
  private readonly _changed = new EventEmitter<void>();
  readonly changed = this._changed.event;
  kernels = [kernel()];
  watchedUse = '';
  wantsLeft = false;
  left: ReturnType<typeof kernel>[] = [];
  usesOf = (): object[] => [{ memory_used_mib: 2048, memory_total_mib: 24576, utilization: 50 }];
  refresh = async (): Promise<void> => undefined;
  show(changes: object): void {
    this.kernels = [kernel(changes)];
    this._changed.fire();
  }
}

const calls: unknown[][] = [];
const hub = {
  specsForHub: async () => [],
  call: async (...words: unknown[]) => void calls.push(words)
} as unknown as Hub;
const signIns: string[] = [];
const signIn = { run: async (name: string) => signIns.push(name) } as unknown as SignIn;
const open: { dispose(): void }[] = [];

afterEach(() => {
  open.splice(0).forEach(one => one.dispose());
  user.progresses.length = user.messages.length = user.items.length = 0;
  workspace.notebookDocuments = [];
});

function statusBar(): { model: PlayedModel; item: Record<string, unknown> } {
  window.activeNotebookEditor = { notebook };
  const model = new PlayedModel();
  open.push(new StatusBar(model as unknown as Model));
  return { model, item: user.items[0]! };
}

test('the status bar shows GPU, memory, use, link and time left', () => {
  const { model, item } = statusBar();
  assert.equal(item.text, '$(server-process) gpu2 · GPU 0 · 2 of 24 GiB, 50 % · connected, 3 ms');
  assert.deepEqual(item.accessibilityInformation, {
    label: 'gpu2 · GPU 0 · 2 of 24 GiB, 50 % · connected, 3 ms. Show Remote GPUs',
    role: 'button'
  });
  model.show({ ends_at: Date.now() / 1000 + 3700 });
  assert.match(String(item.text), /1 h 1 min left$/);
  assert.equal(model.watchedUse, 'k1');
});

test('the status bar offers the sign-in where that helps', () => {
  const { model, item } = statusBar();
  model.show({ link: 'away', error: { kind: 'AuthError', hop: 'gpu2', cause: 'asks for a code', remedy: '', login: true } });
  assert.equal(item.text, '$(server-process) gpu2 · out of reach until you sign in');
  assert.equal((item.backgroundColor as { id: string }).id, 'statusBarItem.errorBackground');
  assert.deepEqual((item.command as { arguments: unknown }).arguments, ['gpu2']);
});

test('a notebook without a kernel of ours has no item', () => {
  const { model, item } = statusBar();
  model.show({ notebook: '/w/other.ipynb' });
  assert.equal(item.visible, false);
});

test('a kernel that the notebook had left is shown, and that the next cell attaches it', () => {
  const { model, item } = statusBar();
  model.left = [kernel({ state: 'detached', link: undefined })];
  model.show({ id: 'k3', notebook: '/w/other.ipynb' });
  assert.equal(model.wantsLeft, true);
  assert.equal(item.text, '$(server-process) gpu2 · GPU 0 · detached · the next cell attaches it');
  model.show({});
  assert.equal(model.wantsLeft, false);
});

test('a notebook has the kernel with its path, also that of a session, and rather one that has not ended', () => {
  const session = kernel({ id: 'k2', notebook: '/w/a-jvsc-1b2f-77.ipynb' });
  const of = (uri: Uri, kernels: ReturnType<typeof kernel>[]): string | undefined =>
    kernelOf({ ...notebook, uri } as never, kernels)?.id;
  assert.equal(of(notebook.uri, [kernel({ state: 'ended' }), session]), 'k2');
  assert.equal(of(Uri.file('/w/b.ipynb'), [kernel(), session]), undefined);
  assert.equal(of(new Uri('untitled', 'Untitled-1.ipynb'), [kernel({ notebook: 'Untitled-1.ipynb' })]), 'k1');
  assert.equal(of(notebook.uri, [kernel({ notebook: '' })]), undefined);
  assert.equal(kernelspecOf(notebook as never), 'gpu2');
  assert.equal(kernelspecOf({ metadata: { custom: { metadata: { kernelspec: { name: 'x' } } } } } as never), 'x');
  assert.equal(kernelspecOf({ metadata: {} } as never), '');
});

function notices(): { model: PlayedModel; pass: (seconds: number) => void } {
  workspace.notebookDocuments = [notebook];
  const model = new PlayedModel();
  let now = NOW * 1000;
  open.push(new Notices(hub, model as unknown as Model, signIn, () => now));
  return { model, pass: seconds => (now += seconds * 1000) };
}

const away = { link: 'away', state: 'busy', away_since: NOW };

test('an outage is told once it lasts, and no longer than it lasts', async () => {
  const { model, pass } = notices();
  model.show(away);
  assert.equal(user.progresses.length, 0);
  pass(3);
  model.show(away);
  model.show(away);
  const [progress] = user.progresses;
  assert.equal(user.progresses.length, 1);
  assert.match(progress!.title, /^gpu2 is out of reach since \d\d:\d\d:\d\d$/);
  assert.equal(progress!.messages[0], 'a.ipynb keeps running.');
  model.show({});
  await until(() => !progress!.open);
});

test('an outage of a notebook that is not open is not told', () => {
  const { model, pass } = notices();
  workspace.notebookDocuments = [];
  model.show(away);
  pass(9);
  model.show(away);
  assert.equal(user.progresses.length, 0);
});

test('a wait is told with the place, which follows, and its cancellation interrupts it', async () => {
  const { model, pass } = notices();
  model.show({ state: 'waiting', place: 2 });
  pass(3);
  model.show({ state: 'waiting', place: 2, waiting_text: 'All GPUs are in use.' });
  model.show({ state: 'waiting', place: 1 });
  const [progress] = user.progresses;
  assert.equal(progress!.title, 'a.ipynb waits for a GPU');
  assert.deepEqual(progress!.messages, ['place 2 in the queue of gpu2. All GPUs are in use.', 'place 1 in the queue of gpu2.']);
  progress!.cancelled.fire();
  await until(() => calls.length > 0);
  assert.deepEqual(calls, [['interrupt', { kernel: 'k1', specs: [] }]]);
});

test('an outage that only the user can end offers the sign-in', async () => {
  const { model, pass } = notices();
  const locked = { ...away, error: { kind: 'AuthError', hop: 'login', cause: 'asks for a code', login: true } };
  user.presses.push('Sign In');
  model.show(locked);
  pass(3);
  model.show(locked);
  await until(() => signIns.length > 0);
  assert.match(user.messages[0]!, /^gpu2 is out of reach since .*login: asks for a code/);
  assert.deepEqual(signIns, ['gpu2']);
});

test('a kernel that waits for Slurm says so, and one that is well says nothing', () => {
  assert.equal(noticeFor(kernel({ state: 'waiting', job: { state: 'PENDING' } }), NOW)!.title, 'a.ipynb waits for its job');
  assert.equal(noticeFor(kernel(), NOW), null);
});

const node: INodeOverview = {
  node: 'gpu2',
  names: ['gpu2'],
  connected: true,
  problem: null,
  gpus: [
    { uuid: 'GPU-a', index: 0, name: 'NVIDIA A100', free: false, kernel: 'k1', processes: [], memory_used_mib: 1024, memory_total_mib: 24576, utilization: 7 },
    { uuid: 'GPU-b', index: 1, name: 'NVIDIA A100', free: true, kernel: null, processes: [] }
  ],
  queue: [{ id: 'k2', mine: true, notebook: '/w/b.ipynb', place: 1, since: NOW - 120, priority: 0 }],
  cluster: null
};

test('the view has nodes, and of each the kernels, GPUs and queue', () => {
  const [top, ...others] = rowsOf([node], [kernel({ state: 'busy', busy_since: NOW - 60 }), kernel({ id: 'k9', hop: 'elsewhere' })], NOW);
  assert.deepEqual(
    top!.children.map(each => [each.label, each.description]),
    [
      ['a.ipynb', 'busy 1 min · GPU 0 · 3 ms'],
      ['GPU 0', 'a.ipynb · 1 / 24 GiB · 7 %'],
      ['GPU 1', 'free · unknown · unknown'],
      ['1. b.ipynb', 'waits 2 min']
    ]
  );
  assert.deepEqual(others.map(each => each.kernelId), ['k9']);
});

test('rows say what can be done with them, and speak', () => {
  const [top] = rowsOf([node], [kernel({ state: 'busy' })], NOW);
  const [first, , , waiter] = top!.children;
  assert.equal(first!.contextValue, 'kernel interrupt stop attach notebook');
  assert.equal(waiter!.contextValue, 'waiter kernel waiting');
  assert.equal(waiter!.accessibilityInformation!.label, 'Place 1 in the queue: b.ipynb, waits 2 min');
});

test('a node that needs the user offers the sign-in', () => {
  const problem = { kind: 'AuthError', hop: 'login', cause: 'asks for a code', remedy: 'Sign in.', login: true };
  const [top] = rowsOf([{ ...node, gpus: [], problem }], [], NOW);
  assert.equal(top!.contextValue, 'node signIn');
  assert.equal(top!.specName, 'gpu2');
  assert.equal(top!.children[0]!.label, 'login: asks for a code');
});

test('a row of a node makes no icon and no link', () => {
  const [top] = rowsOf([], [kernel({ notebook: '/w/[x](command:y)$(error).ipynb', hop: 'h' })], NOW);
  assert.equal(top!.label, '[x] (command:y)$ (error).ipynb');
  assert.equal(row.id, 'k1');
});
