/**
 * The requests that change something on nodes, and what it means when one fails.
 */
import { ServerConnection } from '@jupyterlab/services';

import { get, post } from '../request';
import { KERNELS_PATH } from '../tokens';
import type { IProblem } from '../tokens';

/** A line of a kernel's log. */
export interface IStoryRow {
  readonly time?: number | null;
  readonly event?: string;
  readonly text?: string;
  readonly remedy?: string;
  readonly error?: IProblem;
}

/** The answer to `attach`. */
export interface IAttached {
  /** Jupyter's id. */
  readonly kernel_id: string;
  /** The kernel's notebook; null if it has none below the server's root. */
  readonly path: string | null;
  /** null: the notebook has another kernel, or there is no notebook. */
  readonly session: object | null;
}

export type KernelAction = 'interrupt' | 'restart' | 'stop';

export class Requests {
  constructor(settings: ServerConnection.ISettings) {
    this._settings = settings;
  }

  async act(kernel: string, action: KernelAction): Promise<void> {
    await post(this._settings, pathOf(kernel, action), {});
  }

  /** Makes a kernel that runs without this server one of its kernels. */
  async attach(kernel: string): Promise<IAttached> {
    return (await post(this._settings, pathOf(kernel, 'attach'), {})) as IAttached;
  }

  async prioritize(kernel: string, priority: number): Promise<void> {
    await post(this._settings, pathOf(kernel, 'priority'), { priority });
  }

  async story(kernel: string): Promise<readonly IStoryRow[]> {
    const rows = await get(this._settings, pathOf(kernel, 'story'));
    return Array.isArray(rows) ? (rows as IStoryRow[]) : [];
  }

  private readonly _settings: ServerConnection.ISettings;
}

/** Reads the error that the server described. */
export async function problemOf(error: unknown): Promise<IProblem> {
  const unknown = { kind: 'Error', hop: '', cause: error instanceof Error ? error.message : String(error), remedy: '' };
  if (!(error instanceof ServerConnection.ResponseError)) {
    return unknown;
  }
  try {
    const reply = await error.response.json();
    return reply.error?.cause ? (reply.error as IProblem) : { ...unknown, cause: String(reply.message || unknown.cause) };
  } catch {
    return unknown; // no JSON: a proxy has answered
  }
}

function pathOf(kernel: string, what: string): string {
  return `${KERNELS_PATH}/${encodeURIComponent(kernel)}/${what}`;
}
