/**
 * The requests of the form.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';

import { answerOf, get, post, problemOf, remove } from '../request';
import { API_PATH } from '../tokens';
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
    return this._get(`ssh-hosts${query}`);
  }

  async specs(): Promise<readonly ISpec[]> {
    return this._get('kernelspecs');
  }

  async start(request: IProbeRequest): Promise<IProbe> {
    return this._post('probes', request);
  }

  async probe(id: string): Promise<IProbe> {
    return this._get(`probes/${id}`);
  }

  async cancel(id: string): Promise<void> {
    await this._remove(`probes/${id}`);
  }

  async write(probe: string, name: string, replace: boolean): Promise<IWritten> {
    return this._post('kernelspecs', { probe, name, replace });
  }

  async remove(name: string): Promise<IRemoved> {
    return this._remove(`kernelspecs/${encodeURIComponent(name)}`);
  }

  private _get<T>(path: string): Promise<T> {
    return described(get(this._settings, `${API_PATH}/${path}`, TIMEOUT));
  }

  private _post<T>(path: string, body: object): Promise<T> {
    return described(post(this._settings, `${API_PATH}/${path}`, body, TIMEOUT));
  }

  private _remove<T>(path: string): Promise<T> {
    return described(remove(this._settings, `${API_PATH}/${path}`));
  }

  private readonly _settings: ServerConnection.ISettings;
}

/** The answer to a request. Rejects with `Refusal`. */
async function described<T>(answer: Promise<unknown>): Promise<T> {
  try {
    return (await answer) as T;
  } catch (error) {
    const { field, replaceable } = await answerOf(error);
    throw new Refusal(await problemOf(error), String(field ?? ''), replaceable === true);
  }
}
