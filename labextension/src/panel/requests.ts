/**
 * The requests about kernels.
 */
import type { ServerConnection } from '@jupyterlab/services';

import { get, kernelPath, post } from '../request';
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
    await post(this._settings, kernelPath(kernel, action), {});
  }

  /** Makes a kernel that runs without this server one of its kernels. */
  async attach(kernel: string): Promise<IAttached> {
    return (await post(this._settings, kernelPath(kernel, 'attach'), {})) as IAttached;
  }

  async prioritize(kernel: string, priority: number): Promise<void> {
    await post(this._settings, kernelPath(kernel, 'priority'), { priority });
  }

  async story(kernel: string): Promise<readonly IStoryRow[]> {
    const rows = await get(this._settings, kernelPath(kernel, 'story'));
    return Array.isArray(rows) ? (rows as IStoryRow[]) : [];
  }

  private readonly _settings: ServerConnection.ISettings;
}
