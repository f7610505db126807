import assert from 'node:assert/strict';
import { existsSync, unlinkSync } from 'node:fs';
import { mkdtemp, readdir, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';

import type { Answer, ICallOptions } from '../src/hub/client.js';
import type { Hub } from '../src/hub/hub.js';
import { SignInRequests } from '../src/hub/signInRequests.js';
import type { OnRequest } from '../src/hub/signInRequests.js';
import { Questions } from '../src/questions.js';
import { SignIn } from '../src/signIn.js';
import { stateChanged, until, user, window } from './vscode.js';

const terminals: string[] = [];
const questions = (): Questions => new Questions();
const never = new AbortController().signal;
const password = { kind: 'secret', hop: 'login', prompt: 'Password:', secret: { kind: 'password', of: 'a@login', again: false } };
const hostKey = { kind: 'host', hop: 'login', fingerprint: 'SHA256:abcdWXYZ', key_type: 'ED25519' };
const purpose = { what: 'login', name: 'gpu2', notebook: 'a.ipynb', openTerminal: () => terminals.push('gpu2') } as const;

afterEach(() => {
  user.boxes.length = user.progresses.length = user.messages.length = terminals.length = 0;
  window.state.focused = true;
});

test('a question names who asks, what for, and is hidden', async () => {
  const asking = questions().ask(password, purpose, never);
  await until(() => user.boxes.length === 1);
  const [box] = user.boxes;
  assert.equal(box!.title, 'Sign in to login');
  assert.equal(box!.prompt, 'login asks for your password. Password: The kernel “gpu2” of a.ipynb waits for it.');
  assert.deepEqual([box!.password, box!.ignoreFocusOut], [true, true]);
  box!.enter('secret');
  assert.deepEqual(await asking, { value: 'secret' });
  assert.equal(box!.open, false);
});

test('a host key needs the end of its fingerprint', async () => {
  const asking = questions().ask(hostKey, purpose, never);
  await until(() => user.boxes.length === 1);
  const [box] = user.boxes;
  assert.match(box!.prompt, /ED25519: SHA256:abcdWXYZ/);
  for (const wrong of ['yes', 'XYZ', '', 'abcd']) {
    box!.enter(wrong);
    assert.notEqual(box!.validationMessage, '');
  }
  box!.enter('WXYZ');
  assert.deepEqual(await asking, { value: true });
});

test('one question is open at a time, and the next follows', async () => {
  const one = questions();
  const both = [one.ask(password, purpose, never), one.ask(hostKey, purpose, never)];
  await until(() => user.boxes.length === 1);
  user.boxes[0]!.hidden.fire();
  assert.equal(await both[0], 'cancel');
  await until(() => user.boxes.length === 2);
  user.boxes[1]!.enter('WXYZ');
  assert.deepEqual(await both[1], { value: true });
});

test('a question closes when it was answered elsewhere, also before it was shown', async () => {
  const one = questions();
  const [first, second] = [new AbortController(), new AbortController()];
  const both = [one.ask(password, purpose, first.signal), one.ask(password, purpose, second.signal)];
  await until(() => user.boxes.length === 1);
  second.abort();
  first.abort();
  assert.deepEqual(await Promise.all(both), [null, null]);
  assert.deepEqual(user.boxes.map(box => box.open), [false]);
});

test('the terminal is the way out', async () => {
  const asking = questions().ask(password, purpose, never);
  await until(() => user.boxes.length === 1);
  user.boxes[0]!.triggered.fire(undefined);
  assert.equal(await asking, null);
  assert.deepEqual(terminals, ['gpu2']);
});

/** A hub whose `login` asks these questions, and then does what the last one says. */
function hubWith(login: (options: ICallOptions) => Promise<unknown>): Hub {
  const specs = async (): Promise<object[]> => [{ name: 'gpu2', displayName: 'Remote GPU (gpu2)', settings: {} }];
  const program = async (): Promise<string> => '/bin/jupyter-gpu-kernel';
  return { specs, program, call: (_: string, __: object, options: ICallOptions) => login(options) } as unknown as Hub;
}

const asks = ({ ask, signal }: ICallOptions): Promise<unknown> =>
  new Promise((resolve, reject) => {
    signal!.addEventListener('abort', () => reject(new Error('cancelled')));
    void ask!(password, signal!).then((answer: Answer) =>
      answer !== null && answer !== 'cancel' ? resolve({}) : reject(new Error('nobody answered'))
    );
  });

test('a sign-in asks, and tells how it went', async () => {
  const signIn = new SignIn(hubWith(asks), questions());
  const outcome = async (act: () => void): Promise<string> => {
    const running = signIn.run('gpu2');
    await until(() => user.boxes.some(box => box.open));
    act();
    return running;
  };
  assert.equal(await outcome(() => user.boxes[0]!.enter('secret')), 'connected');
  assert.equal(await outcome(() => user.boxes[1]!.hidden.fire()), 'cancelled');
  assert.equal(await outcome(() => user.boxes[2]!.triggered.fire(undefined)), 'terminal');
  assert.equal(await outcome(() => user.progresses[3]!.cancelled.fire()), 'cancelled');
  assert.deepEqual(user.messages, []);
  assert.deepEqual(user.terminals.map(one => one.shellArgs), [['login', 'gpu2']]);
});

test('a failed sign-in says why, and offers to try again', async () => {
  let tries = 0;
  const signIn = new SignIn(hubWith(async () => (tries++ ? {} : Promise.reject(new Error('login: refused.')))), questions());
  user.presses.push('Try Again');
  assert.equal(await signIn.run('gpu2'), 'failed');
  await until(() => tries === 2);
  assert.equal(user.messages[0], 'Signing in to gpu2 failed. login: refused.');
});

test('two sign-ins to one kernelspec are one', async () => {
  const signIn = new SignIn(hubWith(asks), questions());
  const both = [signIn.run('gpu2'), signIn.run('GPU2')];
  await until(() => user.boxes.length === 1);
  user.boxes[0]!.enter('secret');
  assert.deepEqual(await Promise.all(both), ['connected', 'connected']);
  assert.equal(user.boxes.length, 1);
});

test('a sign-in ends for a caller that leaves, and goes on for the others', async () => {
  const signIn = new SignIn(hubWith(asks), questions());
  const [first, second] = [new AbortController(), new AbortController()];
  const both = [first, second].map(one => signIn.run('gpu2', '', one.signal));
  await until(() => user.boxes.length === 1);
  first.abort();
  assert.equal(await both[0], 'left');
  assert.equal(user.boxes[0]!.open, true);
  user.boxes[0]!.enter('secret');
  assert.equal(await both[1], 'connected');
});

test('a sign-in that all callers have left ends, and the next one is another', async () => {
  const signIn = new SignIn(hubWith(asks), questions());
  const callers = [new AbortController(), new AbortController()];
  const both = callers.map(one => signIn.run('gpu2', '', one.signal));
  await until(() => user.boxes.length === 1);
  callers.forEach(one => one.abort());
  const next = signIn.run('gpu2');
  assert.deepEqual(await Promise.all(both), ['left', 'left']);
  await until(() => user.boxes.length === 2);
  assert.equal(user.boxes[0]!.open, false);
  user.boxes[1]!.enter('secret');
  assert.equal(await next, 'connected');
  assert.equal(await signIn.run('gpu2', '', callers[0]!.signal), 'left');
  assert.deepEqual(user.messages, []);
});

const request = { name: 'gpu2', node: 'gpu2', notebook: '/w/a.ipynb' };

test('a window without the focus waits until it has the focus', async () => {
  window.state.focused = false;
  const signIn = new SignIn(hubWith(asks), questions());
  const answering = signIn.answer(request, never);
  await until(() => user.progresses.length === 1);
  assert.equal(user.progresses[0]!.title, 'The kernel “gpu2” of a.ipynb waits until you sign in to gpu2.');
  assert.equal(user.boxes.length, 0);
  stateChanged.fire({ focused: true });
  await until(() => user.boxes.length === 1);
  user.boxes[0]!.enter('secret');
  assert.equal(await answering, false);
});

test('a kernel that does not wait any more closes what this window shows', async () => {
  for (const focused of [false, true]) {
    window.state.focused = focused;
    const gone = new AbortController();
    const answering = new SignIn(hubWith(asks), questions()).answer(request, gone.signal);
    await until(() => (focused ? user.boxes : user.progresses).length > 0);
    gone.abort();
    assert.equal(await answering, false);
    assert.ok(user.boxes.every(box => !box.open) && user.progresses.every(one => !one.open));
  }
});

/** A launcher's request in a new folder, which is shown. */
async function shown(onRequest: OnRequest): Promise<{ requests: SignInRequests; folder: string; path: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'remote-gpu-'));
  const requests = new SignInRequests(folder, onRequest);
  const path = join(folder, 'a1.json');
  await writeFile(path, JSON.stringify(request));
  await until(() => existsSync(join(folder, 'a1.shown')));
  return { requests, folder, path };
}

test('a request is shown, and goes when the user has cancelled', async () => {
  const { requests, folder, path } = await shown(async () => true);
  await until(() => !existsSync(path));
  assert.equal((await readdir(folder)).filter(name => name.endsWith('.looking')).length, 1);
  requests.dispose();
  assert.deepEqual(await readdir(folder), ['a1.shown']);
});

test('a request for which VS Code cannot ask stays for other pages', async () => {
  const { requests, path } = await shown(async () => Promise.reject(new Error('no window')));
  requests.dispose();
  assert.ok(existsSync(path));
});

test('a launcher that leaves ends its request', async () => {
  let ended = false;
  const { requests, path } = await shown(
    (_, gone) => new Promise(resolve => gone.addEventListener('abort', () => resolve((ended = true))))
  );
  unlinkSync(path);
  await until(() => ended);
  requests.dispose();
});

test('what is no request, or is old, is not shown', async () => {
  let asked = 0;
  const { requests, folder } = await shown(async () => ((asked += 1), false));
  await writeFile(join(folder, 'b2.json'), '{"name": "../x"}');
  await writeFile(join(folder, 'c3.json'), '[');
  await writeFile(join(folder, 'd4.json'), JSON.stringify(request));
  await utimes(join(folder, 'd4.json'), 0, 0);
  await writeFile(join(folder, 'e5.json'), JSON.stringify(request));
  await until(() => existsSync(join(folder, 'e5.shown')));
  assert.equal(asked, 2);
  assert.deepEqual((await readdir(folder)).filter(name => name.endsWith('.shown')), ['a1.shown', 'e5.shown']);
  requests.dispose();
});
