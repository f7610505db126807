/**
 * Which kernel a notebook is offered after a restart of the Jupyter server. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IKernelOverview, IOverview } from '../model/overview';
// The import has a suffix, for Node's test runner.
import { duration } from '../format.js';
import type { IRemoteKernel } from '../tokens';

/** The hub may have to connect to the node first. */
const MAX_OVERVIEWS = 20;

/** The kernel that a notebook had. */
export interface IHad {
  /** The kernelspec's name. */
  readonly name: string;
  readonly row: Pick<IRemoteKernel, 'id'> | null;
}

/** The search for that kernel, in overviews that come after its beginning: older ones are from before the restart. */
export interface ISearch {
  /** The last overview that was looked at, or the last one before. */
  readonly seen: IOverview | null;
  /** After how many more without the kernel it counts as gone. */
  readonly left: number;
  readonly found: IKernelOverview | null;
}

export function beginSearch(overview: IOverview | null): ISearch {
  return { seen: overview, left: MAX_OVERVIEWS, found: null };
}

export function continueSearch(search: ISearch, overview: IOverview | null, had: IHad, path: string): ISearch {
  if (!overview || overview === search.seen) {
    return search;
  }
  const found = offered(overview.kernels, had, path);
  return { seen: overview, left: found ? search.left : search.left - 1, found };
}

/** The kernel that the notebook had, if it runs and no front end has it; or else one that this notebook had left. */
export function offered(kernels: readonly IKernelOverview[], had: IHad, path: string): IKernelOverview | null {
  const free = kernels.filter(each => !each.attached && !each.kernel_id && each.state !== 'ended' && each.name === had.name);
  return free.find(each => each.id === had.row?.id) ?? free.find(each => each.path === path) ?? null;
}

/** `now`: in seconds since 1970. */
export function offerText(kernel: IKernelOverview, now: number, trans: TranslationBundle): string {
  return kernel.busy_since
    ? trans.__('The kernel is still running on %1, and has been busy for %2.', kernel.node, duration(now - kernel.busy_since, trans))
    : trans.__('The kernel is still running on %1.', kernel.node);
}
