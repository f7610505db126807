/**
 * What the status bar item shows of a kernel. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IGpuUse, IRemoteKernel } from '../tokens';
// The imports have a suffix, for Node's test runner.
import { clock, duration, memory, roundTrip, usersOf } from '../format.js';
import { isHelpedByLogin, waitsForJob } from '../tokens.js';

/** normal; attention: wait, or look at it soon; problem: it does not go on by itself. */
export type Level = 'normal' | 'attention' | 'problem';

export interface IView {
  readonly text: string;
  readonly tooltip: string;
  readonly level: Level;
  /** Whether signing in helps. */
  readonly signIn: boolean;
}

/** Less time than this is worth attention. */
const LITTLE_TIME = 15 * 60;

/**
 * The view of a kernel.
 *
 * @param uses its GPUs, as far as their use is known
 * @param now in seconds since 1970
 */
export function viewOf(
  kernel: IRemoteKernel,
  uses: readonly IGpuUse[],
  now: number,
  trans: TranslationBundle
): IView {
  const trouble = troubleOf(kernel, trans);
  const left = kernel.ends_at && kernel.state !== 'ended' ? Math.max(0, kernel.ends_at - now) : null;
  const time = left === null ? '' : trans.__('%1 left', duration(left, trans));
  const parts = trouble
    ? [trouble.text, time]
    : [gpuText(kernel, trans), useText(uses, trans), linkText(kernel, trans), time];
  const little = left !== null && left < LITTLE_TIME;
  return {
    text: [kernel.node, ...parts].filter(Boolean).join(' · '),
    tooltip: tooltipOf(kernel, uses, time, trans),
    level: trouble?.level ?? (little ? 'attention' : 'normal'),
    signIn: kernel.link === 'away' && isHelpedByLogin(kernel.error)
  };
}

/** The view of a kernel while the browser cannot reach the Jupyter server. */
export function outdated(view: IView, node: string, trans: TranslationBundle): IView {
  const explained = trans.__('The browser cannot reach the Jupyter server. The kernel keeps running. Last known state:');
  return {
    text: `${node} · ${trans.__('Jupyter server out of reach')}`,
    tooltip: `${explained}\n${view.tooltip}`,
    level: 'problem',
    signIn: false
  };
}

/** The most important problem in a few words. */
function troubleOf(kernel: IRemoteKernel, trans: TranslationBundle): { text: string; level: Level } | null {
  if (kernel.state === 'ended') {
    return { text: trans.__('ended'), level: 'problem' };
  }
  if (kernel.link === 'connecting') {
    return { text: trans.__('connecting…'), level: 'attention' };
  }
  if (kernel.link === 'away') {
    return awayOf(kernel, trans);
  }
  if (kernel.link === 'taken') {
    return { text: trans.__('taken over by another computer'), level: 'problem' };
  }
  const wait = waitsForJob(kernel) ? trans.__('waits for its job') : trans.__('waits for a GPU');
  return kernel.state === 'waiting' ? { text: wait, level: 'attention' } : null;
}

function awayOf(kernel: IRemoteKernel, trans: TranslationBundle): { text: string; level: Level } {
  if (kernel.error?.kind === 'AuthError') {
    return { text: trans.__('out of reach until you sign in'), level: 'problem' };
  }
  if (kernel.error?.kind === 'HostKeyError') {
    return { text: trans.__('out of reach, its host key is not accepted'), level: 'problem' };
  }
  const since = kernel.away_since;
  return { text: since ? trans.__('reconnecting since %1', clock(since)) : trans.__('reconnecting…'), level: 'attention' };
}

/** “GPU 0”, “2 GPUs”, “no GPU yet”. */
function gpuText(kernel: IRemoteKernel, trans: TranslationBundle): string {
  const count = kernel.gpus.length;
  if (count === 1) {
    return /^GPU \d+/.exec(kernel.gpu_names?.[0] ?? '')?.[0] ?? trans.__('1 GPU');
  }
  return count === 0 ? trans.__('no GPU yet') : trans.__('%1 GPUs', count);
}

/** Memory and use of all its GPUs together. */
function useText(uses: readonly IGpuUse[], trans: TranslationBundle): string {
  const sum = (values: readonly (number | null | undefined)[]): number | null =>
    values.length && values.every(value => typeof value === 'number') ? values.reduce((a, b) => a! + b!, 0)! : null;
  const used = memory(sum(uses.map(use => use.memory_used_mib)), sum(uses.map(use => use.memory_total_mib)), trans);
  const busy = sum(uses.map(use => use.utilization));
  return [used, busy === null ? '' : `${Math.round(busy / uses.length)} %`].filter(Boolean).join(', ');
}

function linkText(kernel: IRemoteKernel, trans: TranslationBundle): string {
  if (kernel.link !== 'up') {
    return '';
  }
  const time = roundTrip(kernel.round_trip_ms, trans);
  return time ? trans.__('connected, %1', time) : trans.__('connected');
}

function tooltipOf(kernel: IRemoteKernel, uses: readonly IGpuUse[], time: string, trans: TranslationBundle): string {
  const away = kernel.link === 'away' && kernel.away_since;
  return [
    trans.__('Remote GPU kernel %1 (%2)', kernel.name, kernel.id),
    trans.__('Node: %1', kernel.node),
    trans.__('State: %1', kernel.state) + (kernel.busy_since ? ` (${trans.__('since %1', clock(kernel.busy_since))})` : ''),
    away
      ? trans.__('Link: out of reach since %1', clock(away, true))
      : trans.__('Link: %1', linkText(kernel, trans) || kernel.link),
    ...(kernel.state === 'ended' ? endOf(kernel, trans) : gpusOf(kernel, uses, trans)),
    time,
    ...(kernel.error ? [`${kernel.error.hop}: ${kernel.error.cause}`, kernel.error.remedy] : [])
  ]
    .filter(Boolean)
    .join('\n');
}

function gpusOf(kernel: IRemoteKernel, uses: readonly IGpuUse[], trans: TranslationBundle): string[] {
  const names = (kernel.gpu_names ?? kernel.gpus).join(', ');
  return [
    trans.__('GPUs: %1', names || trans.__('none; the first cell takes them')),
    uses.length ? trans.__('In use: %1', useText(uses, trans)) : '',
    usersOf(uses.flatMap(use => use.processes ?? []), trans)
  ];
}

function endOf(kernel: IRemoteKernel, trans: TranslationBundle): string[] {
  return [kernel.cause ?? '', kernel.remedy ?? '', trans.__('The next cell that you run starts a new kernel.')];
}
