/**
 * The requests of the form.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { API_PATH } from '../tokens';
import type { IProblem } from '../tokens';
import { Refusal } from './types';
import type { IAddApi, IHost, IProbe, IProbeRequest, ISpec, IWritten } from './types';

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
    const url = URLExt.join(this._settings.baseUrl, API_PATH, path);
    const init = { method, ...(body ? { body: JSON.stringify(body) } : {}) };
    const response = await ServerConnection.makeRequest(url, init, this._settings);
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) {
      throw new Refusal(response.status, problemOf(response, answer), answer.field ?? '', answer.replaceable === true);
    }
    return answer;
  }

  private readonly _settings: ServerConnection.ISettings;
}

function problemOf(response: Response, answer: { error?: IProblem; message?: string }): IProblem {
  const cause = answer.message || `${response.status} ${response.statusText}`;
  return answer.error ?? { kind: 'Error', hop: '', cause, remedy: '' };
}
