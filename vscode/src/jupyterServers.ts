/**
 * The kernels as a Jupyter server in the kernel picker of Microsoft's Jupyter extension, where that is installed.
 *
 * The server is a process of our program, which this window starts when it is chosen. It outlives a reload of the window,
 * so that the running cell goes on there, and ends by itself a while after the window. The kernels go on.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import * as vscode from 'vscode';

import { inert } from './hub/border.js';
import type { Hub } from './hub/hub.js';
import { recordOf } from '../../labextension/src/untrusted.js';

const JUPYTER = 'ms-toolsai.jupyter';
const SERVER = { id: 'remote-gpu', label: 'Remote GPU kernels' };
/** Milliseconds until the server listens. */
const START_TIMEOUT = 30_000;
const LONGEST_LINE = 4096;
/** Milliseconds between two requests by which the server knows that this window is there. */
const SIGN_OF_LIFE = 10_000;
/** How long the server waits for a window, as an argument of our program. */
const WITHOUT_WINDOW = '90s';

/** Where a server listens. */
interface IListening {
  readonly url: string;
  readonly token: string;
}

/** A server that this window has started. While its process lives, nobody else can listen on its port. */
interface IStarted extends IListening {
  readonly pid: number;
}

interface IServer {
  readonly id: string;
  readonly label: string;
  readonly connectionInformation?: { readonly baseUrl: vscode.Uri; readonly token: string };
}

/** The part of that extension's API that is used. */
interface IJupyterApi {
  createJupyterServerCollection(
    id: string,
    label: string,
    provider: { provideJupyterServers(): IServer[]; resolveJupyterServer(server: IServer): Promise<IServer> }
  ): vscode.Disposable;
}

export class JupyterServers implements vscode.Disposable {
  /** `secrets` and `storage`: of this extension; the latter belongs to this window's folder. */
  constructor(hub: Hub, secrets: vscode.SecretStorage, storage: vscode.Uri | undefined) {
    this._hub = hub;
    this._secrets = secrets;
    this._key = `server of ${storage?.toString() ?? 'a window without a folder'}`;
  }

  /** Adds the server to the picker, once. After a failure the next call tries again. */
  async register(): Promise<void> {
    const extension = vscode.extensions.getExtension<IJupyterApi>(JUPYTER);
    if (!extension || this._isRegistered) {
      return;
    }
    this._isRegistered = true;
    try {
      const api = await extension.activate();
      this._collection = api.createJupyterServerCollection?.('remote-gpu', 'Remote GPUs', {
        provideJupyterServers: () => [SERVER],
        resolveJupyterServer: async server => ({ ...server, connectionInformation: await this._running() })
      });
    } catch (error) {
      this._isRegistered = false;
      throw error;
    }
  }

  dispose(): void {
    this._collection?.dispose();
    clearInterval(this._timer);
  }

  private _running(): Promise<NonNullable<IServer['connectionInformation']>> {
    this._starting ??= this._start();
    this._starting.catch(() => (this._starting = undefined)); // the next choice tries again
    return this._starting;
  }

  private async _start(): Promise<NonNullable<IServer['connectionInformation']>> {
    const server = (await this._known()) ?? (await this._started());
    clearInterval(this._timer);
    this._timer = setInterval(() => void this._look(server), SIGN_OF_LIFE);
    return { baseUrl: vscode.Uri.parse(server.url), token: server.token };
  }

  /** The server that this window had before it was reloaded, if it is still there. */
  private async _known(): Promise<IStarted | null> {
    const saved = startedIn((await this._secrets.get(this._key)) ?? '');
    if (saved && (await answers(saved))) {
      return saved;
    }
    await this._secrets.delete(this._key);
    return null;
  }

  private async _started(): Promise<IStarted> {
    const words = ['serve', '--json', '--while-used', WITHOUT_WINDOW];
    const process = spawn(await this._hub.program(), words, { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    const listening = listeningIn(await firstLine(process));
    if (!listening) {
      process.kill();
      throw new Error('the server of remote GPU kernels did not say where it listens');
    }
    process.unref();
    const server = { ...listening, pid: process.pid! };
    await this._secrets.store(this._key, JSON.stringify(server));
    return server;
  }

  /** Tells the server that this window is there. A server that has ended is started again when it is needed. */
  private async _look(server: IStarted): Promise<void> {
    if (!(await answers(server))) {
      clearInterval(this._timer);
      this._starting = undefined;
    }
  }

  private readonly _hub: Hub;
  private readonly _secrets: vscode.SecretStorage;
  private readonly _key: string;
  private _isRegistered = false;
  private _collection: vscode.Disposable | undefined;
  private _timer: NodeJS.Timeout | undefined;
  private _starting: Promise<NonNullable<IServer['connectionInformation']>> | undefined;
}

/** What our program has printed; null if that is no server on this computer. */
function listeningIn(text: string): IListening | null {
  try {
    const { url, token } = recordOf(JSON.parse(text));
    const isLocal = typeof url === 'string' && /^http:\/\/127\.0\.0\.1:\d{1,5}\/$/.test(url);
    return isLocal && typeof token === 'string' ? { url, token } : null;
  } catch {
    return null;
  }
}

/** The server in what this window has saved; null if there is none. */
function startedIn(text: string): IStarted | null {
  const listening = listeningIn(text);
  const pid = listening && recordOf(JSON.parse(text)).pid;
  return listening && typeof pid === 'number' && pid > 0 ? { ...listening, pid } : null;
}

/** Whether the server answers. The token is sent only while its process lives: later, the port may be another user's. */
async function answers({ url, token, pid }: IStarted): Promise<boolean> {
  try {
    process.kill(pid, 0); // throws if this user has no such process
    const headers = { Authorization: `token ${token}` };
    return (await fetch(`${url}api/status`, { headers, signal: AbortSignal.timeout(SIGN_OF_LIFE), redirect: 'error' })).ok;
  } catch {
    return false; // it has ended
  }
}

/** The first line that the process prints. It is rejected with what is on stderr if the process ends before. */
function firstLine(process: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let [printed, errors] = ['', ''];
    const timer = setTimeout(() => process.kill(), START_TIMEOUT);
    process.stderr?.on('data', (text: Buffer) => (errors = (errors + text.toString()).slice(-LONGEST_LINE)));
    process.stdout?.on('data', (text: Buffer) => {
      printed = (printed + text.toString()).slice(0, LONGEST_LINE);
      if (printed.includes('\n')) {
        clearTimeout(timer);
        resolve(printed.slice(0, printed.indexOf('\n')));
      }
    });
    process.once('error', reject);
    process.once('exit', () => {
      clearTimeout(timer);
      reject(new Error(`the server of remote GPU kernels ended: ${inert(errors, 1000)}`));
    });
  });
}
