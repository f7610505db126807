/**
 * The requests about kernels of other programs that wait for a sign-in.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';

import { get, remove } from '../request';
import { API_PATH } from '../tokens';
import { parseStarts } from './starts';
import type { IWaitingStart } from './starts';

const PATH = `${API_PATH}/sign-ins`;

/** The kernels of other programs that wait for a sign-in; whoever fetches them shows them. Rejects as `get` does. */
export async function fetchWaitingStarts(settings: ServerConnection.ISettings): Promise<IWaitingStart[]> {
  return parseStarts(await get(settings, PATH));
}

/** Lets one of them wait no longer: its start fails. Never rejects: it may have ended meanwhile. */
export async function cancelWaitingStart(settings: ServerConnection.ISettings, id: string): Promise<void> {
  await remove(settings, URLExt.join(PATH, encodeURIComponent(id))).catch(() => undefined);
}
