/**
 * The HTTP requests of this extension.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { IOverview } from './model/overview';
import { parseJournal } from './outputs/journal';
import type { IJournal } from './outputs/journal';
import { parsePrompts } from './prompts/prompt';
import type { IPrompt } from './prompts/prompt';
import type { Reply } from './prompts/queue';
import { KERNELS_PATH, NODES_PATH, OVERVIEW_PATH, PROMPTS_PATH, SIGN_INS_PATH } from './tokens';
import type { INode, IRemoteKernel } from './tokens';
import { parseStarts } from './waiting/starts';
import type { IWaitingStart } from './waiting/starts';

/**
 * All remote kernels that the server knows, and the use of the GPUs of those with these Jupyter kernel ids.
 *
 * Rejects with a `ServerConnection.ResponseError` if the server refuses (404: our server extension is not
 * loaded), and with a `ServerConnection.NetworkError` if it cannot be reached.
 */
export async function fetchKernels(
  settings: ServerConnection.ISettings,
  useOf: readonly string[]
): Promise<IRemoteKernel[]> {
  const query = new URLSearchParams(useOf.map(id => ['gpus', id]));
  return (await get(settings, useOf.length ? `${KERNELS_PATH}?${query}` : KERNELS_PATH)) as IRemoteKernel[];
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

/** The questions that wait for the user; whoever fetches them shows them. Rejects as `fetchKernels` does. */
export async function fetchPrompts(settings: ServerConnection.ISettings): Promise<IPrompt[]> {
  return parsePrompts(await get(settings, PROMPTS_PATH));
}

/**
 * Answers a question, or cancels it. Resolves to the server's reason if the answer cannot be right; to '' if it was
 * taken, or nobody waits for it any more. Never rejects.
 */
export async function sendReply(settings: ServerConnection.ISettings, id: string, reply: Reply): Promise<string> {
  const path = URLExt.join(PROMPTS_PATH, encodeURIComponent(id));
  try {
    await (reply ? post(settings, path, reply) : request(settings, path, { method: 'DELETE' }));
  } catch (error) {
    const isGone = error instanceof ServerConnection.ResponseError && error.response.status === 404;
    if (reply && !isGone) {
      return error instanceof Error ? error.message : String(error);
    }
  }
  return '';
}

/** Signs in to the node of a kernelspec. Whether the user has not cancelled. Rejects with the server's reason. */
export async function signIn(settings: ServerConnection.ISettings, name: string): Promise<boolean> {
  const answer = await post(settings, URLExt.join(NODES_PATH, encodeURIComponent(name), 'login'), {});
  return (answer as { ok?: unknown }).ok === true;
}

/** The kernels of other programs that wait for a sign-in; whoever fetches them shows them. Rejects as `fetchKernels`. */
export async function fetchWaitingStarts(settings: ServerConnection.ISettings): Promise<IWaitingStart[]> {
  return parseStarts(await get(settings, SIGN_INS_PATH));
}

/** Lets one of them wait no longer: its start fails. Never rejects: it may have ended meanwhile. */
export async function cancelWaitingStart(settings: ServerConnection.ISettings, id: string): Promise<void> {
  const path = URLExt.join(SIGN_INS_PATH, encodeURIComponent(id));
  await request(settings, path, { method: 'DELETE' }).catch(() => undefined);
}

/** GET of a path below the server's base URL. Rejects as `fetchKernels` does. */
export async function get(settings: ServerConnection.ISettings, path: string): Promise<unknown> {
  return request(settings, path, {});
}

/** POST of a JSON body to a path below the server's base URL. Rejects as `fetchKernels` does. */
export async function post(settings: ServerConnection.ISettings, path: string, body: object): Promise<unknown> {
  const headers = { 'Content-Type': 'application/json' };
  return request(settings, path, { method: 'POST', headers, body: JSON.stringify(body) });
}

async function request(settings: ServerConnection.ISettings, path: string, init: RequestInit): Promise<unknown> {
  const response = await ServerConnection.makeRequest(URLExt.join(settings.baseUrl, path), init, settings);
  if (!response.ok) {
    throw await ServerConnection.ResponseError.create(response);
  }
  return response.json();
}
