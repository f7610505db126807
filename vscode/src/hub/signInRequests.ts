/**
 * Looks for kernels whose start waits until their user has signed in, as a Jupyter server does. Each is a file in a folder
 * that only this user can enter. No secret passes here.
 */
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { inert, specNameOf } from './border.js';
import { line, recordOf } from '../../../labextension/src/untrusted.js';

/** Milliseconds between two looks. */
const INTERVAL = 1000;
/** Milliseconds after which a file was left by a launcher that was killed. */
const LONGEST = 60_000;

export interface IWaitingKernel {
  readonly name: string;
  readonly node: string;
  readonly notebook: string;
}

/** Asks the user. Returns true when the user has cancelled; `gone`: the kernel does not wait any more. */
export type OnRequest = (kernel: IWaitingKernel, gone: AbortSignal) => Promise<boolean>;

export class SignInRequests {
  /** Looks into this folder from now on. */
  constructor(folder: string, onRequest: OnRequest) {
    this._folder = folder;
    this._onRequest = onRequest;
    this._mark = join(folder, `${randomBytes(4).toString('hex')}.looking`);
    this._look();
    this._timer = setInterval(() => {
      try {
        this._look();
      } catch {
        // The folder has been removed. Who needs it next makes it again.
      }
    }, INTERVAL);
  }

  /** At once, as the window may be about to end. */
  dispose(): void {
    clearInterval(this._timer);
    removed(this._mark);
  }

  private _look(): void {
    writeFileSync(this._mark, '', { mode: 0o600 });
    const names = readdirSync(this._folder).filter(name => /^\w+\.json$/.test(name));
    for (const [name, gone] of this._waiting) {
      if (!names.includes(name)) {
        gone.abort();
        this._waiting.delete(name);
      }
    }
    for (const name of names) {
      if (!this._waiting.has(name)) {
        const gone = new AbortController();
        this._waiting.set(name, gone);
        void this._ask(join(this._folder, name), gone.signal);
      }
    }
  }

  /** Asks the user, and removes the file of a kernel for which the user has cancelled. */
  private async _ask(path: string, gone: AbortSignal): Promise<void> {
    try {
      const { name, node, notebook } = recordOf(JSON.parse(readFileSync(path, 'utf8')));
      if (specNameOf(name) && Date.now() - statSync(path).mtimeMs < LONGEST) {
        writeFileSync(path.replace(/json$/, 'shown'), '', { mode: 0o600 });
        const kernel = { name: specNameOf(name), node: inert(node, 200), notebook: line(notebook, 4096) };
        if (await this._onRequest(kernel, gone)) {
          removed(path);
        }
      }
    } catch {
      // The kernel has just stopped waiting, or VS Code cannot ask, and another page may.
    }
  }

  private readonly _folder: string;
  private readonly _onRequest: OnRequest;
  private readonly _mark: string;
  private readonly _timer: NodeJS.Timeout;
  /** What ends each request, by the file's name. */
  private readonly _waiting = new Map<string, AbortController>();
}

function removed(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // Another process has removed it.
  }
}
