/**
 * The hub of this user: found and started by our program, and called over its local socket. Also the kernelspecs, which
 * go with most calls.
 */
import { HubClient } from './client.js';
import type { ICallOptions } from './client.js';
import { rowsOf } from './border.js';
import { callProgram } from '../installation.js';
import type { IInstallation } from '../installation.js';
import type { Facts } from '../../../labextension/src/untrusted.js';
import { recordOf } from '../../../labextension/src/untrusted.js';

/** The protocol between hub clients and hub that this extension speaks. */
const PROTOCOL = 1;
/** Milliseconds for which the list of kernelspecs is used again. */
const SPECS_AGE = 30_000;

/** Where the hub listens. `key` is the path of a file, `signIns` that of a folder. */
export interface IPlace {
  readonly address: string;
  readonly key: string;
  readonly signIns: string;
}

export interface ISpec {
  readonly name: string;
  readonly displayName: string;
  readonly settings: Facts;
}

export class Hub {
  /** `find` finds our program and kernelspecs. */
  constructor(find: () => Promise<IInstallation | null>) {
    this._find = find;
  }

  /** The path of our program. It is rejected if there is none. */
  async program(): Promise<string> {
    const installation = await this.installation();
    if (!installation) {
      const remedy = 'Install it with “pip install jupyter-gpu-kernel”, or set “remoteGpu.program” to the path of the program.';
      throw new Error(`jupyter-gpu-kernel was not found on this computer. ${remedy}`);
    }
    return installation.program;
  }

  /** Our program and the names of our kernelspecs now; null if there is no program. */
  installation(): Promise<IInstallation | null> {
    return this._find();
  }

  /** Where the hub listens. The first call starts a hub if there is none. */
  place(): Promise<IPlace> {
    this._place ??= this.program().then(async program => placeOf(await callProgram(program, ['vscode', 'hub'])));
    this._place.catch(() => (this._place = undefined)); // the next call tries again
    return this._place;
  }

  /** Calls an operation. The hub is started if there is none; with `start` false the call is rejected then. */
  async call(op: string, values: object = {}, options: ICallOptions & { start?: boolean } = {}): Promise<unknown> {
    this._openCalls += 1;
    try {
      return await (await this._connected(options.start ?? true)).call(op, values, options);
    } finally {
      this._openCalls -= 1;
      if (this._isReleased) {
        this.release();
      }
    }
  }

  /** Our kernelspecs. */
  async specs(): Promise<readonly ISpec[]> {
    if (Date.now() - this._specsTime > SPECS_AGE) {
      const rows = rowsOf(await callProgram(await this.program(), ['list', '--json']));
      this._specs = rows.map(row => ({
        name: String(row.name),
        displayName: String(row.display_name),
        settings: recordOf(row.settings)
      }));
      this._specsTime = Date.now();
    }
    return this._specs;
  }

  /** The kernelspecs as the hub's operations take them. */
  async specsForHub(): Promise<object[]> {
    return (await this.specs()).map(({ name, settings }) => ({ name, settings }));
  }

  /** The kernelspecs have changed. */
  forgetSpecs(): void {
    this._specsTime = 0;
  }

  /** Closes the connection as soon as no call is open. */
  release(): void {
    this._isReleased = this._openCalls > 0;
    if (!this._isReleased) {
      this.disconnect();
    }
  }

  /** Closes the connection; the next call opens another one. */
  disconnect(): void {
    const client = this._client;
    this._client = undefined;
    void client?.then(
      one => one.close(),
      () => undefined
    );
  }

  /** The connection. A call that comes meanwhile waits for this one, so that only one connection is open. */
  private _connected(start: boolean): Promise<HubClient> {
    this._client = this._open(this._client, start);
    return this._client;
  }

  private async _open(before: Promise<HubClient> | undefined, start: boolean): Promise<HubClient> {
    const known = await before?.catch(() => undefined);
    return known && !known.closed ? known : this._connect(start);
  }

  private async _connect(start: boolean): Promise<HubClient> {
    if (!start && !this._place) {
      throw new Error('the local hub does not run'); // asking where it listens would start it
    }
    const { address, key } = await this.place();
    try {
      return await HubClient.connect(address, key);
    } catch (error) {
      if (!start) {
        throw error;
      }
    }
    this._place = undefined; // our program starts a hub when it is asked where that is
    const again = await this.place();
    return HubClient.connect(again.address, again.key);
  }

  private readonly _find: () => Promise<IInstallation | null>;
  private _client: Promise<HubClient> | undefined;
  private _place: Promise<IPlace> | undefined;
  private _openCalls = 0;
  private _isReleased = false;
  private _specs: readonly ISpec[] = [];
  private _specsTime = 0;
}

function placeOf(answer: unknown): IPlace {
  const { protocol, address, key, sign_ins } = recordOf(answer);
  if (protocol !== PROTOCOL) {
    const what = `the installed jupyter-gpu-kernel speaks protocol ${String(protocol)}, and this extension ${PROTOCOL}`;
    throw new Error(`${what}. “jupyter gpu-kernel vscode install” installs the extension that fits.`);
  }
  if (typeof address !== 'string' || typeof key !== 'string' || typeof sign_ins !== 'string') {
    throw new Error('our program did not say where the hub listens');
  }
  return { address, key, signIns: sign_ins };
}
