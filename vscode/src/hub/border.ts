/**
 * What comes from the hub, whose rows have texts of nodes and of other users: types are checked, lengths are bounded, and
 * texts are inert in VS Code, which makes links and icons of some. Pure.
 */
import { isRecord, line, listOf, recordOf } from '../../../labextension/src/untrusted.js';
import type { Facts } from '../../../labextension/src/untrusted.js';
import type { IGpu, IGpuUse, IKernelOverview, IProblem } from '../shared/words.js';
import type { ICluster, IWaiter } from '../../../labextension/src/model/overview.js';
import type { KernelState, LinkState } from '../../../labextension/src/tokens.js';

const LONGEST = 300;
/** Rows of one kind, and entries of a list in a row. */
const MOST_ROWS = 5000;
const MOST_ENTRIES = 256;
const STATES: readonly string[] = ['starting', 'waiting', 'idle', 'busy', 'away', 'detached', 'ended'];
const LINKS: readonly string[] = ['up', 'away', 'taken', 'lost', 'connecting'];

/** One line of text in which neither `[text](link)` nor `$(icon)` has a meaning. */
export function inert(value: unknown, most = LONGEST): string {
  return line(value, most).replace(/\](?=\()/g, '] ').replace(/\$(?=\()/g, '$ ');
}

/** A kernel's id, which is shown, and is an argument of commands; '' for anything else. */
export function idOf(value: unknown): string {
  return typeof value === 'string' && /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(value) ? value : '';
}

/** The name of a kernelspec; '' for anything else. */
export function specNameOf(value: unknown): string {
  return typeof value === 'string' && /^[A-Za-z0-9._-]{1,100}$/.test(value) ? value : '';
}

/** A node's own name; with the user's name for it, which the node cannot choose, if the two differ. */
export function nodeName(own: string, hop: string): string {
  const name = hop.slice(hop.lastIndexOf('@') + 1);
  const host = (text: string): string => text.split(':')[0]!.split('.')[0]!;
  return !hop || own === hop || own.split('.')[0] === host(name) ? own || hop : `${name} (${own})`;
}

/** A kernel, with the name under which the user knows its node. */
export interface IKernel extends IKernelOverview {
  readonly hop: string;
}

/** The rows of `ps` and of the operation `kernels`, without those that are errors or malformed. */
export function kernelsOf(value: unknown): IKernel[] {
  return rowsOf(value).flatMap(row => {
    const [id, hop] = [idOf(row.id), inert(row.hop)];
    const state = STATES.includes(row.state as string) ? (row.state as KernelState) : 'away';
    if (!id) {
      return [];
    }
    return [
      {
        id,
        kernel_id: inert(row.kernel_id) || null,
        name: inert(row.name),
        hop,
        node: nodeName(inert(row.node) || hop, hop),
        state,
        link: LINKS.includes(row.link as string) ? (row.link as LinkState) : null,
        error: isRecord(row.error) ? problem(row.error) : null,
        cause: inert(row.cause, 1000),
        remedy: inert(row.remedy, 1000),
        gpus: textsOf(row.gpus),
        gpu_names: textsOf(row.gpu_names),
        busy_since: numberOf(row.busy_since),
        away_since: numberOf(row.away_since),
        round_trip_ms: numberOf(row.round_trip_ms),
        ends_at: numberOf(row.ends_at),
        job: isRecord(row.job) ? { id: inert(row.job.id), state: inert(row.job.state) } : null,
        notebook: line(row.notebook, 4096), // a path, which is compared; its name is made inert where it is shown
        attached: row.attached === true,
        attached_from: inert(row.attached_from),
        since: numberOf(row.since) ?? undefined,
        priority: numberOf(row.priority),
        place: numberOf(row.place),
        waiting_text: inert(row.waiting_text, 1000),
        problem: inert(row.problem) || null
      }
    ];
  });
}

/** A row of `gpus`, without its queue. */
export function gpuOf(row: Facts): IGpu {
  return {
    ...useOf(row),
    index: numberOf(row.index) ?? undefined,
    uuid: inert(row.uuid),
    name: inert(row.name),
    lease: isRecord(row.lease) ? leaseOf(row.lease) : null,
    free: row.free === true,
    reason: inert(row.reason, 1000),
    warning: inert(row.warning, 1000),
    node: inert(row.node)
  };
}

/** The rows of `gpu_use`. */
export function usesOf(value: unknown): IGpuUse[] {
  return rowsOf(value).map(useOf);
}

function useOf(row: Facts): IGpuUse {
  return {
    memory_used_mib: numberOf(row.memory_used_mib),
    memory_total_mib: numberOf(row.memory_total_mib),
    utilization: numberOf(row.utilization),
    processes: rowsOf(row.processes, MOST_ENTRIES).map(one => ({
      pid: numberOf(one.pid) ?? undefined,
      user: inert(one.user),
      memory_mib: numberOf(one.memory_mib),
      name: inert(one.name),
      since: numberOf(one.since) ?? undefined,
      mine: one.yours === true
    }))
  };
}

function leaseOf(lease: Facts): NonNullable<IGpu['lease']> {
  return {
    user: inert(lease.user),
    id: idOf(lease.id),
    since: numberOf(lease.since) ?? undefined,
    idle_since: numberOf(lease.idle_since) ?? undefined
  };
}

/** Who waits for the GPUs of a row of `gpus`. */
export function queueOf(row: Facts): IWaiter[] {
  return rowsOf(row.queue, MOST_ENTRIES).map(one => ({
    user: inert(one.user),
    count: numberOf(one.gpus) ?? undefined,
    since: numberOf(one.since) ?? undefined,
    place: numberOf(one.place) ?? undefined,
    mine: one.yours === true,
    id: idOf(one.id),
    priority: one.yours === true ? numberOf(one.priority) : null,
    notebook: inert(one.notebook, 4096)
  }));
}

/** What Slurm's login node says. */
export function clusterOf(value: unknown): ICluster {
  const { partitions, jobs } = recordOf(value);
  return {
    partitions: rowsOf(partitions, MOST_ENTRIES).map(one => ({
      name: inert(one.name),
      up: one.up !== false,
      gpus: rowsOf(one.gpus, MOST_ENTRIES).map(each => ({
        type: inert(each.type),
        total: numberOf(each.total) ?? undefined,
        free: numberOf(each.free) ?? undefined
      }))
    })),
    jobs: rowsOf(jobs, MOST_ENTRIES).map(one => ({
      id: inert(one.id),
      name: inert(one.name),
      state: inert(one.state),
      reason: inert(one.reason),
      place: numberOf(one.place) ?? undefined,
      start_estimate: numberOf(one.start_estimate),
      end_time: numberOf(one.end_time),
      nodes: textsOf(one.nodes)
    }))
  };
}

export function problem(value: unknown): IProblem {
  const { kind, hop, cause, remedy, login } = recordOf(value);
  const texts = { kind: inert(kind), hop: inert(hop), cause: inert(cause, 2000), remedy: inert(remedy, 1000) };
  return { ...texts, cause: texts.cause || 'unknown error', login: login === true };
}

export function rowsOf(value: unknown, most = MOST_ROWS): Facts[] {
  return listOf(value).slice(0, most).filter(isRecord);
}

export function textsOf(value: unknown): string[] {
  return listOf(value)
    .slice(0, MOST_ENTRIES)
    .flatMap(one => inert(one) || []);
}

export function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}
