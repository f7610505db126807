/**
 * The texts of our kernels among the running ones. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IKernelOverview, IOverview } from '../model/overview';
// The import has a suffix, for Node's test runner.
import { basename, clock, duration } from '../format.js';
import type { IRemoteKernel } from '../tokens';

type Kernels = readonly (IRemoteKernel & Partial<IKernelOverview>)[];

/** All kernels that run: of the overview, which has the detached ones, with what is newer. */
export function runningKernels(overview: IOverview | null, kernels: Kernels): Kernels {
  const newer = new Map(kernels.map(kernel => [kernel.id, kernel]));
  const all = (overview?.kernels ?? []).map(kernel => ({ ...kernel, ...newer.get(kernel.id) }));
  const others = kernels.filter(kernel => !all.some(each => each.id === kernel.id));
  return [...all, ...others].filter(kernel => kernel.state !== 'ended');
}

/** The notebook's name, or else the kernel's. */
export function labelOf(kernel: Kernels[number]): string {
  return basename(kernel.path ?? kernel.notebook ?? '') || `${kernel.name} (${kernel.id})`;
}

/** “gpu2 · detached · busy for 3 min”. */
export function detailOf(kernel: Kernels[number], now: number, trans: TranslationBundle): string {
  const busy = kernel.busy_since ? trans.__('busy for %1', duration(now - kernel.busy_since, trans)) : '';
  const detached = kernel.attached === false && kernel.state !== 'detached' ? trans.__('detached') : '';
  const away = kernel.link === 'away' ? trans.__('out of reach') : '';
  return [kernel.node, detached, away || busy || kernel.state].filter(Boolean).join(' · ');
}

export function tooltipOf(kernel: Kernels[number], trans: TranslationBundle): string {
  return [
    kernel.notebook ?? '',
    trans.__('Remote GPU kernel %1 (%2)', kernel.name, kernel.id),
    trans.__('Node: %1', kernel.node),
    trans.__('State: %1', kernel.state),
    trans.__('GPUs: %1', (kernel.gpu_names ?? kernel.gpus).join(', ') || trans.__('none')),
    kernel.since ? trans.__('since %1', clock(kernel.since)) : ''
  ]
    .filter(Boolean)
    .join('\n');
}
