/**
 * The kernels as a Jupyter server in the kernel picker of Microsoft's Jupyter extension, where that is installed.
 *
 * The server is a process of our program, which this window starts when it is chosen, and ends when the window ends. The
 * kernels go on.
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
  constructor(hub: Hub) {
    this._hub = hub;
  }

  /** Adds the server to the picker, once. */
  async register(): Promise<void> {
    const extension = vscode.extensions.getExtension<IJupyterApi>(JUPYTER);
    if (!extension || this._isRegistered) {
      return;
    }
    this._isRegistered = true;
    const api = await extension.activate();
    this._collection = api.createJupyterServerCollection?.('remote-gpu', 'Remote GPUs', {
      provideJupyterServers: () => [SERVER],
      resolveJupyterServer: async server => ({ ...server, connectionInformation: await this._running() })
    });
  }

  dispose(): void {
    this._collection?.dispose();
    this._process?.kill();
  }

  private _running(): Promise<NonNullable<IServer['connectionInformation']>> {
    this._starting ??= this._start();
    this._starting.catch(() => (this._starting = undefined)); // the next choice tries again
    return this._starting;
  }

  private async _start(): Promise<NonNullable<IServer['connectionInformation']>> {
    const process = spawn(await this._hub.program(), ['serve', '--json'], { stdio: ['ignore', 'pipe', 'pipe'] });
    this._process = process;
    process.once('exit', () => (this._starting = undefined));
    const { url, token } = recordOf(JSON.parse(await firstLine(process)));
    const isLocal = typeof url === 'string' && /^http:\/\/127\.0\.0\.1:\d{1,5}\/$/.test(url);
    if (!isLocal || typeof token !== 'string') {
      process.kill();
      throw new Error('the server of remote GPU kernels did not say where it listens');
    }
    return { baseUrl: vscode.Uri.parse(url), token };
  }

  private readonly _hub: Hub;
  private _isRegistered = false;
  private _collection: vscode.Disposable | undefined;
  private _process: ChildProcess | undefined;
  private _starting: Promise<NonNullable<IServer['connectionInformation']>> | undefined;
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
