/**
 * The request for the history of a kernel.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';

import { get } from '../request';
import { KERNELS_PATH } from '../tokens';
import { parseJournal } from './journal';
import type { IJournal } from './journal';

/** In seconds: the outputs of all cells may be some megabytes, over a slow link. */
const TIMEOUT = 90;

/**
 * The last cells of the kernel with this Jupyter kernel id; with `cellId` the executions of that cell only.
 *
 * Rejects as `get` does, and with 404 if there is no such remote kernel.
 */
export async function fetchJournal(
  settings: ServerConnection.ISettings,
  kernelId: string,
  cellId: string
): Promise<IJournal> {
  const path = URLExt.join(KERNELS_PATH, encodeURIComponent(kernelId), 'journal');
  return parseJournal(await get(settings, path + URLExt.objectToQueryString(cellId ? { cell: cellId } : {}), TIMEOUT));
}
