/**
 * The requests of the shared poll.
 */
import type { ServerConnection } from '@jupyterlab/services';

import { get } from '../request';
import { API_PATH, KERNELS_PATH } from '../tokens';
import type { IRemoteKernel } from '../tokens';
import type { IOverview } from './overview';

/** In seconds: the server waits 2 s for each node, but it may have to start the hub. */
const OVERVIEW_TIMEOUT = 40;

/**
 * All remote kernels that the server knows, and the use of the GPUs of those with these Jupyter kernel ids.
 *
 * Rejects as `get` does.
 */
export async function fetchKernels(
  settings: ServerConnection.ISettings,
  useOf: readonly string[]
): Promise<IRemoteKernel[]> {
  const query = new URLSearchParams(useOf.map(id => ['gpus', id]));
  return (await get(settings, useOf.length ? `${KERNELS_PATH}?${query}` : KERNELS_PATH)) as IRemoteKernel[];
}

/** All nodes with their GPUs, and all kernels, for which the server asks the nodes. Rejects as `get` does. */
export async function fetchOverview(settings: ServerConnection.ISettings): Promise<IOverview> {
  return (await get(settings, `${API_PATH}/overview`, OVERVIEW_TIMEOUT)) as IOverview;
}
