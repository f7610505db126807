import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { activate } from '../src/extension.js';
import { callProgram, findInstallation } from '../src/installation.js';
import { folder, program } from './programs.js';
import { registered } from './vscode.js';

async function spec(data: string, name: string, content: unknown): Promise<void> {
  await mkdir(join(data, 'kernels', name), { recursive: true });
  await writeFile(join(data, 'kernels', name, 'kernel.json'), typeof content === 'string' ? content : JSON.stringify(content));
}

test('the program is the one of our kernelspecs, and others do not count', async () => {
  const [data, own] = [await folder(), await program()];
  await spec(data, 'gpu2', { argv: [own, 'launch'], metadata: { jupyter_gpu_kernel: {} } });
  await spec(data, 'python3', { argv: ['/usr/bin/python3'], metadata: {} });
  await spec(data, 'broken', '{');
  const found = await findInstallation('', { JUPYTER_DATA_DIR: data, PATH: '' });
  assert.deepEqual(found, { program: own, names: new Set(['gpu2']) });
});

test('the setting comes first, then the kernelspecs, then PATH', async () => {
  const [data, chosen, onPath] = [await folder(), await program(), await program()];
  const environment = { JUPYTER_DATA_DIR: data, PATH: `relative:${join(onPath, '..')}` };
  await spec(data, 'old', { argv: ['/nowhere/jupyter-gpu-kernel'], metadata: { jupyter_gpu_kernel: {} } });
  assert.equal((await findInstallation(chosen, environment))!.program, chosen);
  assert.equal((await findInstallation('', environment))!.program, onPath);
  assert.equal(await findInstallation('', { ...environment, PATH: '' }), null);
});

test('what the program prints is JSON, or an error with its words', async () => {
  assert.deepEqual(await callProgram(await program('echo "[1]"'), []), [1]);
  await assert.rejects(callProgram(await program('echo text'), ['list']), /“list” did not print JSON/);
  await assert.rejects(callProgram(await program('echo "no such [host](x)" >&2; exit 1'), []), /^Error: no such \[host\] \(x\)$/);
});

test('each command of the manifest exists, and each one that exists is in it', async () => {
  const context = { subscriptions: [] as { dispose(): void }[] };
  activate(context as never);
  const { contributes } = JSON.parse(await readFile('package.json', 'utf8'));
  const declared: string[] = contributes.commands.map((one: { command: string }) => one.command);
  assert.deepEqual([...registered.keys()].sort(), [...declared].sort());
  const inMenus: { command: string }[] = Object.values(contributes.menus).flat() as never;
  assert.ok(inMenus.every(one => declared.includes(one.command)));
  context.subscriptions.forEach(one => one.dispose());
});
