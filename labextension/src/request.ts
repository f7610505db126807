/**
 * The HTTP requests of this extension.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { IOverview } from './model/overview';
import { parseJournal } from './outputs/journal';
import type { IJournal } from './outputs/journal';
import { KERNELS_PATH, NODES_PATH, OVERVIEW_PATH } from './tokens';
import type { INode, IRemoteKernel } from './tokens';

/**
 * All remote kernels that the server knows.
 *
 * Rejects with a `ServerConnection.ResponseError` if the server refuses (404: our server extension is not
 * loaded), and with a `ServerConnection.NetworkError` if it cannot be reached.
 */
export async function fetchKernels(settings: ServerConnection.ISettings): Promise<IRemoteKernel[]> {
  return (await get(settings, KERNELS_PATH)) as IRemoteKernel[];
}

/** The work nodes on which kernels were started, or that refused a start. Rejects as `fetchKernels` does. */
export async function fetchNodes(settings: ServerConnection.ISettings): Promise<INode[]> {
  return (await get(settings, NODES_PATH)) as INode[];
}

/** All nodes with their GPUs, and all kernels, for which the server asks the nodes. Rejects as `fetchKernels` does. */
export async function fetchOverview(settings: ServerConnection.ISettings): Promise<IOverview> {
  return (await get(settings, OVERVIEW_PATH)) as IOverview;
}

/**
 * The last cells of the kernel with this Jupyter kernel id; with `cellId` the executions of that cell only.
 *
 * Rejects as `fetchKernels` does, and with 404 if there is no such remote kernel.
 */
export async function fetchJournal(
  settings: ServerConnection.ISettings,
  kernelId: string,
  cellId: string
): Promise<IJournal> {
  const path = URLExt.join(KERNELS_PATH, encodeURIComponent(kernelId), 'journal');
  return parseJournal(await get(settings, path + URLExt.objectToQueryString(cellId ? { cell: cellId } : {})));
}

/** GET of a path below the server's base URL. Rejects as `fetchKernels` does. */
export async function get(settings: ServerConnection.ISettings, path: string): Promise<unknown> {
  return request(settings, path, {});
}

/** POST of a JSON body to a path below the server's base URL. Rejects as `fetchKernels` does. */
export async function post(settings: ServerConnection.ISettings, path: string, body: object): Promise<unknown> {
  return request(settings, path, { method: 'POST', body: JSON.stringify(body) });
}

async function request(settings: ServerConnection.ISettings, path: string, init: RequestInit): Promise<unknown> {
  const response = await ServerConnection.makeRequest(URLExt.join(settings.baseUrl, path), init, settings);
  if (!response.ok) {
    throw new ServerConnection.ResponseError(response);
  }
  return response.json();
}
