/**
 * What the plugins of this extension know about nodes and kernels, from one poll of the server.
 */
import { Token } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';

import type { IRemoteKernel } from '../tokens';
import type { IOverview } from './overview';

/** Why the last request failed. */
export interface IModelProblem {
  /**
   * unreachable: the browser cannot reach the Jupyter server. missing: our server extension is not loaded; the model
   * makes no more requests. refused: the server replied with an error, such as 403 to a user without the right.
   */
  readonly kind: 'unreachable' | 'missing' | 'refused';
  readonly message: string;
}

export interface IRemoteModel {
  /** The kernels that the server knew last. While the overview is watched, detached ones are among them. */
  readonly kernels: readonly IRemoteKernel[];
  /** The last overview; null until somebody has watched it. */
  readonly overview: IOverview | null;
  /** Why the last request failed; null if it succeeded. */
  readonly problem: IModelProblem | null;
  /** Emitted after each response, and when a request has failed. */
  readonly changed: ISignal<IRemoteModel, void>;
  /**
   * Keeps `kernels` up to date until the result is disposed of, while the page is visible.
   *
   * Uses no network but to the server; with `useOf`, Jupyter's id of a kernel, the server asks its node now and then
   * for the use of its GPUs.
   */
  watchKernels(useOf?: string): IDisposable;
  /** Keeps `overview` and `kernels` up to date likewise. The server asks the nodes for it. */
  watchOverview(): IDisposable;
  /** Requests what is watched now, and resolves after the response; at once if nothing is watched. Never rejects. */
  refresh(): Promise<void>;
}

export const IRemoteModel = new Token<IRemoteModel>(
  'jupyter-gpu-kernel:IRemoteModel',
  'Remote kernels and nodes, from one poll of the server.'
);
