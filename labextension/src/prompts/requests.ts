/**
 * The requests of the dialog: the questions that wait, the user's replies, and a sign-in.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';

import { get, isNotFound, post, remove } from '../request';
import { API_PATH, NODES_PATH } from '../tokens';
import { parsePrompts } from './prompt';
import type { IPrompt } from './prompt';
import type { Reply } from './queue';

const PATH = `${API_PATH}/prompts`;

/** The questions that wait for the user; whoever fetches them shows them. Rejects as `get` does. */
export async function fetchPrompts(settings: ServerConnection.ISettings): Promise<IPrompt[]> {
  return parsePrompts(await get(settings, PATH));
}

/**
 * Answers a question, or cancels it. Resolves to the server's reason if the answer cannot be right; to '' if it was
 * taken, or nobody waits for it any more. Never rejects.
 */
export async function sendReply(settings: ServerConnection.ISettings, id: string, reply: Reply): Promise<string> {
  const path = URLExt.join(PATH, encodeURIComponent(id));
  try {
    await (reply ? post(settings, path, reply) : remove(settings, path));
  } catch (error) {
    if (reply && !isNotFound(error)) {
      return error instanceof Error ? error.message : String(error);
    }
  }
  return '';
}

/** Signs in to the node of a kernelspec. Whether the user has not cancelled. Rejects with the server's reason. */
export async function signIn(settings: ServerConnection.ISettings, name: string): Promise<boolean> {
  const path = URLExt.join(NODES_PATH, encodeURIComponent(name), 'login');
  const answer = await post(settings, path, {}, Infinity); // it takes as long as the user does
  return (answer as { ok?: unknown }).ok === true;
}
