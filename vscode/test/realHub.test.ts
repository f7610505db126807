/** The client beside the Python hub and launcher that it is for, where they are installed in the checkout. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { after, test } from 'node:test';
import { join } from 'node:path';

import { Hub } from '../src/hub/hub.js';
import { SignInRequests } from '../src/hub/signInRequests.js';
import { folder } from './programs.js';

const BIN = join('..', '.venv', 'bin');
const skip = existsSync(join(BIN, 'jupyter-gpu-kernel')) ? false : 'there is no jupyter-gpu-kernel in .venv';

/** A hub of its own, in new folders. */
async function startHub(): Promise<Hub> {
  process.env.XDG_RUNTIME_DIR = await folder();
  process.env.JUPYTER_DATA_DIR = await folder();
  const program = join(realpathSync(BIN), 'jupyter-gpu-kernel');
  return new Hub(async () => ({ program, names: new Set() }));
}

const open: Hub[] = [];

after(async () => {
  for (const hub of open) {
    const { pid } = (await hub.call('hello')) as { pid: number };
    hub.disconnect();
    process.kill(pid, 'SIGKILL');
  }
});

test('the hub answers, and refuses what it does not know', { skip }, async () => {
  const hub = await startHub();
  open.push(hub);
  assert.equal(((await hub.call('hello')) as { protocol: number }).protocol, 1);
  assert.deepEqual(await hub.call('kernels'), []);
  assert.deepEqual(await hub.specs(), []);
  await assert.rejects(hub.call('no_such_operation'), /no operation/);
});

test('a launcher finds this window, and learns that the user has cancelled', { skip }, async () => {
  const [hub] = open;
  const asked: unknown[] = [];
  const requests = new SignInRequests((await hub!.place()).signIns, async kernel => {
    asked.push(kernel);
    return true;
  });
  const code = `
import threading
from jupyter_gpu_kernel.page_sign_in import PageSignIn
cancelled = threading.Event()
request = PageSignIn(cancelled.set, {"name": "gpu2", "node": "login", "notebook": "/w/a.ipynb"})
print(request.is_shown(), cancelled.wait(30))
request.close()`;
  const printed = await output(join(BIN, 'python'), ['-c', code]);
  requests.dispose();
  assert.equal(printed, 'True True');
  assert.deepEqual(asked, [{ name: 'gpu2', node: 'login', notebook: '/w/a.ipynb' }]);
});

function output(program: string, words: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
    child.once('error', reject);
    child.once('exit', () => resolve(text.trim()));
  });
}
