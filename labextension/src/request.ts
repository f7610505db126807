/**
 * HTTP requests to the server extension. Each has a limit: through a network that swallows packets no answer comes, ever.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { ServiceManager } from '@jupyterlab/services';

// The imports have a suffix, for Node's test runner.
import { KERNELS_PATH } from './tokens.js';
import type { IProblem } from './tokens';
import { isRecord, recordOf } from './untrusted.js';
import type { Facts } from './untrusted';

/** Seconds for what the server knows by itself, or has the hub tell. */
const QUICK = 15;
/** Seconds for what changes something on a node, such as the start of a kernel. */
const SLOW = 180;

/**
 * GET of a path below the server's base URL.
 *
 * Rejects with a `ServerConnection.ResponseError` if the server refuses (404: our server extension is not
 * loaded), and with a `ServerConnection.NetworkError` if it cannot be reached, or does not reply within `seconds`.
 */
export async function get(settings: ServerConnection.ISettings, path: string, seconds = QUICK): Promise<unknown> {
  return request(settings, path, {}, seconds);
}

/** POST of a JSON body to a path below the server's base URL. Rejects as `get` does. */
export async function post(
  settings: ServerConnection.ISettings,
  path: string,
  body: object,
  seconds = SLOW
): Promise<unknown> {
  const headers = { 'Content-Type': 'application/json' };
  return request(settings, path, { method: 'POST', headers, body: JSON.stringify(body) }, seconds);
}

/** DELETE of a path below the server's base URL. Rejects as `get` does. */
export async function remove(settings: ServerConnection.ISettings, path: string): Promise<unknown> {
  return request(settings, path, { method: 'DELETE' }, QUICK);
}

/** The path of a request about a kernel, which is named by our id or Jupyter's. */
export function kernelPath(kernel: string, what: string): string {
  return `${KERNELS_PATH}/${encodeURIComponent(kernel)}/${what}`;
}

/** All that the server says with a refusal; nothing if a proxy has answered, or nobody. */
export async function answerOf(error: unknown): Promise<Facts> {
  return error instanceof ServerConnection.ResponseError
    ? recordOf(await error.response.clone().json().catch(() => undefined))
    : {};
}

/** A failed request as the error that the server describes, or else with the message only. */
export async function problemOf(error: unknown): Promise<IProblem> {
  const { error: problem } = await answerOf(error);
  return isRecord(problem) && problem.cause
    ? (problem as unknown as IProblem)
    : { kind: 'Error', hop: '', cause: error instanceof Error ? error.message : String(error), remedy: '' };
}

/** Whether a request was refused with 404. */
export function isNotFound(error: unknown): boolean {
  return error instanceof ServerConnection.ResponseError && error.response.status === 404;
}

/**
 * Lets JupyterLab know at once which kernels its server has now. By itself it asks every ten seconds, and until then shows
 * a kernel that was stopped here as idle, and sends it cells, which are lost.
 */
export async function refreshKernels({ kernels, sessions }: ServiceManager.IManager): Promise<void> {
  await Promise.allSettled([kernels.refreshRunning(), sessions.refreshRunning()]);
}

async function request(
  settings: ServerConnection.ISettings,
  path: string,
  init: RequestInit,
  seconds: number
): Promise<unknown> {
  const [response, answer] = await send(settings, path, init, seconds);
  if (!response.ok) {
    throw await refusal(response, answer);
  }
  return JSON.parse(answer);
}

/** The error with the server's message, and with a response that can still be read: it has more than the message. */
async function refusal(response: Response, answer: string): Promise<ServerConnection.ResponseError> {
  const whole = (): Response => new Response(answer || null, response);
  const { message, traceback } = await ServerConnection.ResponseError.create(whole());
  return new ServerConnection.ResponseError(whole(), message, traceback);
}

/** The response to a request, whatever its status is, and its body. Rejects with a `ServerConnection.NetworkError`. */
async function send(
  settings: ServerConnection.ISettings,
  path: string,
  init: RequestInit,
  seconds: number
): Promise<[Response, string]> {
  const limit = new AbortController();
  const whole = async (): Promise<[Response, string]> => {
    const url = URLExt.join(settings.baseUrl, path);
    const response = await ServerConnection.makeRequest(url, { ...init, signal: limit.signal }, settings);
    return [response, await response.text()];
  };
  try {
    return await withLimit(whole(), seconds);
  } catch (error) {
    limit.abort();
    throw error instanceof ServerConnection.NetworkError ? error : new ServerConnection.NetworkError(error as TypeError);
  }
}

/** The value of a promise; rejects after so many seconds. */
async function withLimit<T>(promise: Promise<T>, seconds: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    if (Number.isFinite(seconds)) {
      timer = setTimeout(() => reject(new TypeError(`no answer within ${seconds} s`)), seconds * 1000);
    }
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
