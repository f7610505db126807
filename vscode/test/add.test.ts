import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, test } from 'node:test';

import { Add } from '../src/add.js';
import type { ICallOptions } from '../src/hub/client.js';
import type { Hub } from '../src/hub/hub.js';
import { JupyterServers } from '../src/jupyterServers.js';
import { Questions } from '../src/questions.js';
import { program } from './programs.js';
import { Disposable, installed, until, user } from './vscode.js';

const HOSTS = '[{"name": "gpu1", "user": "alice", "port": 22, "jumps": ["login"]}]';
const SPEC = '{"name": "gpu1", "display_name": "Remote GPU (gpu1)", "settings": {"route": ["gpu1"]}, "probe": {"gpus": [{}, {}]}}';

/** A program that notes its arguments, and does what `add` is to do. */
async function played(add: string): Promise<{ path: string; calls: () => Promise<string[]> }> {
  const path = await program(`echo "$@" >> "$0-calls"
case "$*" in
*hosts*) echo '${HOSTS}';;
*--no-probe*) echo '${SPEC}';;
*) ${add};;
esac`);
  const calls = async (): Promise<string[]> => (await readFile(`${path}-calls`, 'utf8')).trim().split('\n');
  return { path, calls };
}

function hubOf(path: string, login: (options: ICallOptions) => Promise<unknown> = async () => ({})): Hub {
  const specs = async (): Promise<object[]> => [{ name: 'gpu2' }];
  const call = (_: string, __: object, options: ICallOptions): Promise<unknown> => login(options);
  return { program: async () => path, specs, call, forgetSpecs: () => undefined } as unknown as Hub;
}

afterEach(() => {
  user.messages.length = user.boxes.length = user.terminals.length = user.lists.length = user.progresses.length = 0;
});

test('a host of the ssh configuration is added in two steps', async () => {
  const { path, calls } = await played(`echo '${SPEC}'`);
  user.choices.push(0, 'gpu1');
  assert.equal(await new Add(hubOf(path), new Questions()).run(), 'gpu1');
  assert.deepEqual(user.lists[0]!.map(one => Object.values(one as object).slice(0, 2)), [
    ['gpu1', 'as alice through login'],
    ['Another machine…', 'user@host']
  ]);
  assert.match(user.messages[0]!, /^“Remote GPU \(gpu1\)” was added. It has 2 GPUs./);
  const [hosts, settings, added, ...more] = await calls();
  assert.equal(hosts, 'vscode hosts');
  assert.match(settings!, /^add gpu1 --name gpu1 --no-probe --prefix \S+ --json$/);
  assert.deepEqual([added, more], ['add gpu1 --name gpu1 --json', []]);
});

test('another machine is asked for, and its jump hosts', async () => {
  const { path, calls } = await played(`echo '${SPEC}'`);
  user.choices.push(1, 'alice@gpu1', 'alice@login:7092', 'mine');
  await new Add(hubOf(path), new Questions()).run();
  assert.equal((await calls()).pop(), 'add alice@gpu1 -J alice@login:7092 --name mine --json');
});

test('who leaves a step adds nothing', async () => {
  const { path, calls } = await played('exit 1');
  for (const choices of [[undefined], [0, undefined], [1, undefined], [1, 'a@b', undefined]]) {
    user.choices.push(...choices);
    assert.equal(await new Add(hubOf(path), new Questions()).run(), undefined);
  }
  assert.ok((await calls()).every(words => words === 'vscode hosts'));
  assert.deepEqual(user.messages, []);
});

test('a failure is told, with a terminal as the way out', async () => {
  const { path } = await played('echo "gpu1: no Python has ipykernel" >&2; exit 1');
  user.choices.push(0, 'gpu1');
  user.presses.push('Open a Terminal');
  assert.equal(await new Add(hubOf(path), new Questions()).run(), undefined);
  assert.deepEqual(user.messages, ['Nothing was added. gpu1: no Python has ipykernel']);
  assert.deepEqual(user.terminals[0]!.shellArgs, ['add', 'gpu1', '--name', 'gpu1']);
});

test('the questions of the connection are asked here, or in a terminal', async () => {
  const { path, calls } = await played(`echo '${SPEC}'`);
  const secret = { kind: 'secret', hop: 'login', prompt: '', secret: { kind: 'password' } };
  const login = async ({ ask, signal }: ICallOptions): Promise<unknown> => {
    const answer = await ask!(secret, signal!);
    return answer === null || answer === 'cancel' ? Promise.reject(new Error('nobody answered')) : {};
  };
  for (const [index, act] of [() => user.boxes[0]!.triggered.fire(undefined), () => user.boxes[1]!.hidden.fire()].entries()) {
    user.choices.push(0, 'gpu1');
    const adding = new Add(hubOf(path, login), new Questions()).run();
    await until(() => user.boxes.length === index + 1);
    assert.match(user.boxes[index]!.prompt, /The connection to “gpu1” waits for it/);
    act();
    assert.equal(await adding, undefined);
  }
  assert.equal(user.terminals.length, 1);
  assert.deepEqual(user.messages, []);
  assert.ok((await calls()).every(words => !/^add gpu1 --name gpu1 --json/.test(words)));
});

test('cancelling the look at the machine ends the program, and says that nothing was added', async () => {
  const { path } = await played('echo $$ > "$0-pid"; exec sleep 60');
  user.choices.push(0, 'gpu1');
  const adding = new Add(hubOf(path), new Questions()).run();
  let pid = 0;
  while (!pid) {
    pid = Number(await readFile(`${path}-pid`, 'utf8').catch(() => ''));
  }
  user.progresses[0]!.cancelled.fire();
  assert.equal(await adding, undefined);
  assert.deepEqual(user.messages, ['Nothing was added.']);
  await until(() => !lives(pid));
});

function lives(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

interface IProvider {
  provideJupyterServers(): { id: string }[];
  resolveJupyterServer(server: object): Promise<{ connectionInformation: { baseUrl: object; token: string } }>;
}

const stored = new Map<string, string>();
const secrets = {
  get: async (key: string) => stored.get(key),
  store: async (key: string, value: string) => void stored.set(key, value),
  delete: async (key: string) => void stored.delete(key)
} as unknown as ConstructorParameters<typeof JupyterServers>[1];

async function provider(path: string): Promise<{ servers: JupyterServers; given: IProvider }> {
  let given: IProvider | undefined;
  const createJupyterServerCollection = (_: string, __: string, one: IProvider): Disposable => {
    given = one;
    return new Disposable(() => undefined);
  };
  installed.set('ms-toolsai.jupyter', { activate: async () => ({ createJupyterServerCollection }) });
  const servers = new JupyterServers(hubOf(path), secrets, undefined);
  await servers.register();
  return { servers, given: given! };
}

/** Ends the process of the saved server, and waits for that. */
async function endSaved(): Promise<void> {
  const { pid } = JSON.parse([...stored.values()][0]!) as { pid: number };
  process.kill(pid);
  await until(() => !lives(pid));
}

test('the server of remote kernels starts when it is chosen, once, and the window uses it again after a reload', async () => {
  const tokens: unknown[] = [];
  const listening = createServer((request, response) => {
    tokens.push(request.headers.authorization);
    response.end();
  });
  await new Promise<void>(resolve => listening.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(listening.address() as AddressInfo).port}/`;
  const path = await program(`echo "$@" >> "$0-calls"; echo '{"url": "${url}", "token": "t"}'; exec sleep 60`);
  const chosen = async ({ given }: { given: IProvider }): Promise<string[]> => {
    const { baseUrl, token } = (await given.resolveJupyterServer(given.provideJupyterServers()[0]!)).connectionInformation;
    return [String(baseUrl), token];
  };
  const first = await provider(path);
  assert.deepEqual(await Promise.all([chosen(first), chosen(first)]), [[url, 't'], [url, 't']]);
  first.servers.dispose();
  const reloaded = await provider(path);
  assert.deepEqual(await chosen(reloaded), [url, 't']);
  assert.equal(await readFile(`${path}-calls`, 'utf8'), 'serve --json --while-used 90s\n');
  assert.deepEqual(tokens, ['token t']);
  reloaded.servers.dispose();
  await endSaved();
  const later = await provider(path);
  await chosen(later);
  assert.equal((await readFile(`${path}-calls`, 'utf8')).split('\n').length, 3, 'one that has ended is started again');
  assert.deepEqual(tokens, ['token t'], 'who has its port then, does not get its token');
  later.servers.dispose();
  await endSaved();
  listening.closeAllConnections();
  await new Promise(resolve => listening.close(resolve));
});

test('a server that does not start, or is elsewhere, is an error', async () => {
  stored.clear();
  const ended = await provider(await program('echo "no kernelspec" >&2; exit 1'));
  await assert.rejects(ended.given.resolveJupyterServer({}), /no kernelspec/);
  const elsewhere = await provider(await program(`echo '{"url": "http://example.org/", "token": "t"}'; exec sleep 60`));
  await assert.rejects(elsewhere.given.resolveJupyterServer({}), /did not say/);
  [ended, elsewhere].forEach(one => one.servers.dispose());
});

test('a Jupyter extension that did not start is asked again', async () => {
  let tries = 0;
  const createJupyterServerCollection = (): Disposable => new Disposable(() => undefined);
  const activate = async (): Promise<object> => (tries++ ? { createJupyterServerCollection } : Promise.reject(new Error('not now')));
  installed.set('ms-toolsai.jupyter', { activate });
  const servers = new JupyterServers(hubOf('/nowhere'), secrets, undefined);
  await assert.rejects(servers.register(), /not now/);
  await servers.register();
  await servers.register();
  assert.equal(tries, 2);
  servers.dispose();
});

test('without the Jupyter extension nothing is added', async () => {
  installed.clear();
  await new JupyterServers(hubOf('/nowhere'), secrets, undefined).register();
});
