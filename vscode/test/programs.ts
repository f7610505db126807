/** Programs that stand in for ours. */
import { chmod, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export function folder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'remote-gpu-'));
}

/** A program of this shell script. */
export async function program(script = 'echo "{}"'): Promise<string> {
  const path = join(await folder(), 'jupyter-gpu-kernel');
  await writeFile(path, `#!/bin/sh\n${script}\n`);
  await chmod(path, 0o755);
  return path;
}
