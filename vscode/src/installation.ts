/**
 * Our Python package on this computer: where its program is, which kernelspecs it has written, and calls of the program.
 */
import { execFile } from 'node:child_process';
import { access, constants, readdir, readFile, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';

import { inert } from './hub/border.js';
import { isRecord, listOf, recordOf } from '../../labextension/src/untrusted.js';

const PROGRAM = process.platform === 'win32' ? 'jupyter-gpu-kernel.exe' : 'jupyter-gpu-kernel';
const LARGEST_SPEC = 1024 * 1024;
const MOST_SPECS = 1000;
/** Bytes that the program may print. */
const LARGEST_OUTPUT = 16 * 1024 * 1024;
const LONGEST_ERROR = 1500;

export interface IInstallation {
  /** The absolute path. */
  readonly program: string;
  /** The names of our kernelspecs. */
  readonly names: ReadonlySet<string>;
}

/** A kernelspec of ours. */
interface ISpec {
  readonly name: string;
  readonly program: string;
}

/**
 * Our program and kernelspecs; null if there is no program.
 *
 * @param chosen the path in the user's settings, or ''
 */
export async function findInstallation(chosen: string, environment: NodeJS.ProcessEnv = process.env): Promise<IInstallation | null> {
  const specs = await specsIn(join(dataFolder(environment), 'kernels'));
  const onPath = (environment.PATH ?? '').split(delimiter).filter(isAbsolute).map(folder => join(folder, PROGRAM));
  for (const program of [chosen, ...specs.map(spec => spec.program), ...onPath]) {
    if (isAbsolute(program) && (await isProgram(program))) {
      return { program, names: new Set(specs.map(spec => spec.name)) };
    }
  }
  return null;
}

/** Jupyter's folder for the user's data. */
function dataFolder({ JUPYTER_DATA_DIR, XDG_DATA_HOME, APPDATA }: NodeJS.ProcessEnv): string {
  if (JUPYTER_DATA_DIR) {
    return JUPYTER_DATA_DIR;
  }
  if (process.platform === 'darwin') {
    return join(homedir(), 'Library', 'Jupyter');
  }
  return process.platform === 'win32' && APPDATA ? join(APPDATA, 'jupyter') : join(XDG_DATA_HOME || join(homedir(), '.local', 'share'), 'jupyter');
}

async function specsIn(folder: string): Promise<ISpec[]> {
  const names = await readdir(folder).catch(() => []);
  const found = await Promise.all(names.slice(0, MOST_SPECS).map(name => specIn(name, join(folder, name, 'kernel.json'))));
  return found.filter(spec => spec !== null);
}

/** The kernelspec in this file; null if it is another program's, or broken. */
async function specIn(name: string, file: string): Promise<ISpec | null> {
  try {
    if ((await stat(file)).size > LARGEST_SPEC) {
      return null;
    }
    const { argv, metadata } = recordOf(JSON.parse(await readFile(file, 'utf8')));
    const program = listOf(argv)[0];
    return isRecord(recordOf(metadata).jupyter_gpu_kernel) && typeof program === 'string' ? { name, program } : null;
  } catch {
    return null;
  }
}

async function isProgram(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false
  );
}

/**
 * What the program prints as JSON. It is rejected with what the program writes to stderr. No argument is a secret.
 *
 * @param signal ends the program
 */
export function callProgram(program: string, words: readonly string[], seconds = 60, signal?: AbortSignal): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const options = { timeout: seconds * 1000, maxBuffer: LARGEST_OUTPUT, windowsHide: true, signal };
    const child = execFile(program, words, options, (error, stdout, stderr) => {
      if (error) {
        return reject(new Error(inert(stderr, LONGEST_ERROR) || inert(error.message, LONGEST_ERROR)));
      }
      try {
        resolve(JSON.parse(stdout));
      } catch {
        reject(new Error(`“${words.join(' ')}” did not print JSON`));
      }
    });
    child.stdin?.end(); // so that nothing is asked there
  });
}
