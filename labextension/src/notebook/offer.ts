/**
 * Which kernel a notebook is offered after a restart of the Jupyter server. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IKernelOverview } from '../model/overview';
// The import has a suffix, for Node's test runner.
import { duration } from '../format.js';
import type { IRemoteKernel } from '../tokens';

/** The kernel that the notebook had, if it runs and no front end has it; or else one that this notebook had left. */
export function offered(
  kernels: readonly IKernelOverview[],
  had: { readonly name: string; readonly row: Pick<IRemoteKernel, 'id'> | null },
  path: string
): IKernelOverview | null {
  const free = kernels.filter(each => !each.attached && !each.kernel_id && each.state !== 'ended' && each.name === had.name);
  return free.find(each => each.id === had.row?.id) ?? free.find(each => each.path === path) ?? null;
}

/** `now`: in seconds since 1970. */
export function offerText(kernel: IKernelOverview, now: number, trans: TranslationBundle): string {
  return kernel.busy_since
    ? trans.__('The kernel is still running on %1, and has been busy for %2.', kernel.node, duration(now - kernel.busy_since, trans))
    : trans.__('The kernel is still running on %1.', kernel.node);
}
