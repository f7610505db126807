/**
 * The one request that this extension makes.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { KERNELS_PATH } from './tokens';
import type { IRemoteKernel } from './tokens';

/**
 * All remote kernels that the server knows.
 *
 * Rejects with a `ServerConnection.ResponseError` when the server refuses (404: our server extension is
 * not there), with a `ServerConnection.NetworkError` when it cannot be reached.
 */
export async function fetchKernels(settings: ServerConnection.ISettings): Promise<IRemoteKernel[]> {
  const url = URLExt.join(settings.baseUrl, KERNELS_PATH);
  const response = await ServerConnection.makeRequest(url, {}, settings);
  if (!response.ok) {
    throw new ServerConnection.ResponseError(response);
  }
  return (await response.json()) as IRemoteKernel[];
}
