/**
 * What the panel says of a node and its GPUs. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IGpu, IKernelOverview, INodeOverview, IWaiter } from '../model/overview';
import type { IProblem } from '../tokens';
// The imports have a suffix, for Node's test runner.
import { memoryParts, usageParts } from './curve.js';
import { basename, elapsed, gibibytes, share, shortName, usersOf } from '../format.js';
import { titleOf } from './kernelView.js';

export interface IMeter {
  /** 0 to 1; null if it is not known. */
  readonly part: number | null;
  readonly text: string;
  readonly values: readonly (readonly [number, number | null])[];
}

export interface IGpuView {
  readonly key: string;
  readonly label: string;
  /** 'mine': one of the user's kernels has it; 'shared': others use it as well. 'other': not free, for whatever reason. */
  readonly holder: 'mine' | 'shared' | 'other' | 'free';
  readonly who: string;
  readonly since: string;
  /** The notebook of the user's kernel, if the server can open it. */
  readonly path: string | null;
  /** Everybody on it with the memory of each, unless one person alone is there. */
  readonly users: string;
  /** Why it is not free, and warnings. */
  readonly reason: string;
  /** Everything, for the tooltip. */
  readonly hint: string;
  readonly memory: IMeter;
  readonly usage: IMeter;
}

export interface IWaiterView {
  readonly key: string;
  /** Of the user's own kernels. */
  readonly id: string | null;
  readonly priority: number;
  readonly since: number;
  readonly place: string;
  readonly who: string;
  readonly count: string;
  readonly waited: string;
}

export interface INodeView {
  readonly name: string;
  /** The kernelspec with which the user signs in. */
  readonly spec: string | null;
  readonly summary: string;
  readonly models: string;
  readonly problem: IProblem | null;
  readonly isConnecting: boolean;
  readonly gpus: readonly IGpuView[];
  readonly queue: readonly IWaiterView[];
}

export function nodeView(
  trans: TranslationBundle,
  node: INodeOverview,
  kernels: readonly IKernelOverview[],
  now: number
): INodeView {
  const models = [...new Set(node.gpus.map(gpu => shortName(gpu.name ?? '')).filter(Boolean))];
  return {
    name: node.node,
    spec: node.names[0] ?? null,
    summary: summaryOf(trans, node),
    models: models.length === 1 ? trans.__('%1 × %2', node.gpus.length, models[0]) : models.join(', '),
    problem: node.problem,
    isConnecting: !node.problem && !node.connected && !node.cluster,
    gpus: node.gpus.map((gpu, index) => gpuView(trans, node, gpu, index, kernels, now)),
    queue: node.queue.map((one, index) => waiterView(trans, one, index, now))
  };
}

/** How many GPUs of all nodes a kernel could take at once; '' if none is known. */
export function totalOf(trans: TranslationBundle, nodes: readonly INodeOverview[]): string {
  const gpus = nodes.filter(node => !node.cluster).flatMap(node => node.gpus); // Slurm assigns the others
  return gpus.length ? freeOf(trans, gpus) : '';
}

function summaryOf(trans: TranslationBundle, node: INodeOverview): string {
  if (node.problem) {
    return node.problem.login ? trans.__('sign in') : trans.__('out of reach');
  }
  if (node.gpus.length) {
    return freeOf(trans, node.gpus);
  }
  return node.cluster ? trans.__('Slurm') : node.connected ? trans.__('no GPU') : trans.__('connecting…');
}

function freeOf(trans: TranslationBundle, gpus: readonly IGpu[]): string {
  return trans.__('%1 of %2 free', gpus.filter(gpu => gpu.free && !gpu.kernel).length, gpus.length);
}

function gpuView(
  trans: TranslationBundle,
  node: INodeOverview,
  gpu: IGpu,
  index: number,
  kernels: readonly IKernelOverview[],
  now: number
): IGpuView {
  const mine = gpu.kernel ? kernels.find(kernel => kernel.id === gpu.kernel) : undefined;
  const processes = gpu.processes ?? [];
  const others = processes.filter(one => !one.mine).map(one => one.user || '?');
  const people = new Set([gpu.lease?.user ?? '', ...processes.map(one => one.user ?? '')].filter(Boolean));
  const user = [...people].filter(one => one !== '?').join(', ');
  const users = people.size > 1 || mine ? usersOf(processes, trans) : '';
  const since = gpu.lease?.since ?? earliest(processes.map(one => one.since));
  const reason = [gpu.free || mine || user ? '' : gpu.reason, gpu.warning].filter(Boolean).join('; ');
  return {
    key: gpu.uuid ?? String(index),
    label: [node.cluster ? gpu.node : '', trans.__('GPU %1', gpu.index ?? index)].filter(Boolean).join(' '),
    holder: mine ? (others.some(one => one !== '?') ? 'shared' : 'mine') : gpu.free ? 'free' : 'other',
    who: mine ? titleOf(trans, mine) : gpu.free ? trans.__('free') : user || trans.__('not free'),
    since: gpu.free ? '' : idleOf(trans, gpu, now) || elapsed(since, now, trans),
    path: mine?.path ?? null,
    users,
    reason,
    hint: [gpu.name, gpu.uuid, gpu.node, usersOf(processes, trans), gpu.reason, gpu.warning].filter(Boolean).join('\n'),
    memory: memoryOf(trans, gpu),
    usage: usageOf(trans, gpu)
  };
}

function memoryOf(trans: TranslationBundle, gpu: IGpu): IMeter {
  const [used, total] = [gpu.memory_used_mib, gpu.memory_total_mib];
  const known = typeof used === 'number' && typeof total === 'number';
  return {
    part: share(used, total),
    text: known ? trans.__('%1 / %2 GiB', gibibytes(used), gibibytes(total)) : trans.__('unknown'),
    values: memoryParts(gpu.history ?? [], total ?? 0)
  };
}

function usageOf(trans: TranslationBundle, gpu: IGpu): IMeter {
  const known = typeof gpu.utilization === 'number';
  return {
    part: share(gpu.utilization, 100),
    text: known ? trans.__('%1 %', gpu.utilization) : trans.__('unknown'),
    values: usageParts(gpu.history ?? [])
  };
}

/** A lease whose holder does no work: the others may want to ask. */
function idleOf(trans: TranslationBundle, gpu: IGpu, now: number): string {
  return gpu.lease?.idle_since ? trans.__('idle %1', elapsed(gpu.lease.idle_since, now, trans)) : '';
}

function waiterView(trans: TranslationBundle, one: IWaiter, index: number, now: number): IWaiterView {
  const notebook = basename(one.notebook ?? '');
  return {
    key: `${one.place ?? index} ${one.id ?? one.user ?? ''}`,
    id: (one.mine && one.id) || null,
    priority: one.priority ?? 0,
    since: one.since ?? 0,
    place: String(one.place ?? index + 1),
    who: one.mine ? notebook || trans.__('you') : one.user || trans.__('somebody'),
    count: (one.count ?? 1) > 1 ? trans.__('%1 GPUs', one.count) : '', // nearly all wait for one
    waited: elapsed(one.since, now, trans)
  };
}

function earliest(times: readonly (number | undefined)[]): number | undefined {
  const known = times.filter((time): time is number => Boolean(time));
  return known.length ? Math.min(...known) : undefined;
}
