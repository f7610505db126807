/**
 * The requests of the form.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';

import { send } from '../request';
import { API_PATH } from '../tokens';
import type { IProblem } from '../tokens';
import { Refusal } from './types';
import type { IAddApi, IHost, IProbe, IProbeRequest, ISpec, IWritten } from './types';

/** In seconds; a search takes longer, but no request waits for it. */
const TIMEOUT = 30;

export interface IRemoved {
  readonly removed: readonly string[];
  readonly notes: readonly string[];
}

export class AddRequests implements IAddApi {
  constructor(settings: ServerConnection.ISettings) {
    this._settings = settings;
  }

  async hosts(config: string): Promise<readonly IHost[]> {
    const query = config.trim() ? URLExt.objectToQueryString({ config: config.trim() }) : '';
    return (await this._ask('GET', `ssh-hosts${query}`)) as IHost[];
  }

  async specs(): Promise<readonly ISpec[]> {
    return (await this._ask('GET', 'kernelspecs')) as ISpec[];
  }

  async start(request: IProbeRequest): Promise<IProbe> {
    return (await this._ask('POST', 'probes', request)) as IProbe;
  }

  async probe(id: string): Promise<IProbe> {
    return (await this._ask('GET', `probes/${id}`)) as IProbe;
  }

  async cancel(id: string): Promise<void> {
    await this._ask('DELETE', `probes/${id}`);
  }

  async write(probe: string, name: string, replace: boolean): Promise<IWritten> {
    return (await this._ask('POST', 'kernelspecs', { probe, name, replace })) as IWritten;
  }

  async remove(name: string): Promise<IRemoved> {
    return (await this._ask('DELETE', `kernelspecs/${encodeURIComponent(name)}`)) as IRemoved;
  }

  private async _ask(method: string, path: string, body?: object): Promise<unknown> {
    const init = { method, ...(body ? { body: JSON.stringify(body) } : {}) };
    const [response, text] = await send(this._settings, URLExt.join(API_PATH, path), init, TIMEOUT);
    const answer = parse(text);
    if (!response.ok) {
      throw new Refusal(response.status, problemOf(response, answer), answer.field ?? '', answer.replaceable === true);
    }
    return answer;
  }

  private readonly _settings: ServerConnection.ISettings;
}

/** What a proxy answers is no JSON. */
function parse(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

function problemOf(response: Response, answer: { error?: IProblem; message?: string }): IProblem {
  const cause = answer.message || `${response.status} ${response.statusText}`;
  return answer.error ?? { kind: 'Error', hop: '', cause, remedy: '' };
}
