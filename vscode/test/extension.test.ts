import assert from 'node:assert/strict';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { activate } from '../src/extension.js';
import { PlayedHub } from './playedHub.js';
import { folder, program } from './programs.js';
import { notebook } from './rows.js';
import { notebookClosed, notebookOpened, registered, until, user, workspace } from './vscode.js';

test('on Windows it says so, and does nothing', () => {
  const context = { subscriptions: [] };
  activate(context as never, 'win32');
  assert.equal(user.messages.length, 1);
  assert.match(user.messages[0]!, /does not work in VS Code on Windows/);
  assert.deepEqual([context.subscriptions, [...registered.keys()]], [[], []]);
});

test('a window that could not look for sign-ins tries again, and goes when its last notebook has', async () => {
  const played = await PlayedHub.start();
  const signIns = await folder();
  const place = JSON.stringify({ protocol: 1, address: played.address, key: played.keyFile, sign_ins: signIns });
  const own = await program(`echo >> "$0-calls"; test -e "$0-works" && echo '${place}'`);
  const data = await folder();
  const spec = join(data, 'kernels', 'gpu2', 'kernel.json');
  await mkdir(dirname(spec), { recursive: true });
  await writeFile(spec, JSON.stringify({ argv: [own], metadata: { jupyter_gpu_kernel: {} } }));
  process.env.JUPYTER_DATA_DIR = data;
  workspace.notebookDocuments = [notebook];
  const context = { subscriptions: [] as { dispose(): void }[] };
  activate(context as never);
  await until(() => existsSync(`${own}-calls`));
  await writeFile(`${own}-works`, '');
  await until(() => {
    notebookOpened.fire(notebook);
    return readdirSync(signIns).some(name => name.endsWith('.looking'));
  });
  await until(() => played.connections === 1);
  workspace.notebookDocuments = [];
  notebookClosed.fire(notebook);
  await until(() => played.connections === 0);
  context.subscriptions.forEach(one => one.dispose());
  await until(() => readdirSync(signIns).every(name => !name.endsWith('.looking')));
  assert.deepEqual(await readdir(signIns), []);
  await played.stop();
});
