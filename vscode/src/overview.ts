/**
 * All nodes of our kernelspecs with their GPUs, and the user's kernels, from the answers of the hub. Pure.
 *
 * It does what `server/running/overview.py` does for JupyterLab's panel.
 */
import { clusterOf, gpuOf, inert, kernelsOf, numberOf, problem, queueOf, rowsOf, textsOf } from './hub/border.js';
import type { IKernel } from './hub/border.js';
import type { IGpu, INodeOverview, IProblem } from './shared/words.js';
import type { ICluster, IWaiter } from '../../labextension/src/model/overview.js';
import { isRecord, recordOf } from '../../labextension/src/untrusted.js';
import type { Facts } from '../../labextension/src/untrusted.js';

/** Seconds without an answer until a node is said to have a problem. */
const LATE = 10;

export interface IOverview {
  /** Seconds since 1970. */
  readonly time: number;
  readonly nodes: readonly INodeOverview[];
  readonly kernels: readonly IKernel[];
}

/** What the operations of these names have answered. */
export interface IAnswers {
  readonly nodes: unknown;
  readonly gpus: unknown;
  readonly ps: unknown;
  readonly kernels: unknown;
}

export function overviewOf(answers: IAnswers, time: number): IOverview {
  const kernels = joined(kernelsOf(answers.ps), kernelsOf(answers.kernels));
  const nodes = new Map<string, Node>();
  const nodeOf = (name: string): Node => {
    const node = nodes.get(name) ?? new Node(name);
    nodes.set(name, node);
    return node;
  };
  for (const row of rowsOf(answers.nodes)) {
    nodeOf(inert(row.node)).addKnown(row);
  }
  for (const row of rowsOf(answers.gpus)) {
    nodeOf(inert(row.hop) || inert(row.node)).addGpu(row, kernels);
  }
  for (const row of rowsOf(answers.ps)) {
    if (isRecord(row.error) && row.id === undefined) {
      nodes.get(inert(row.node))?.addProblem(row);
    }
  }
  return { time, nodes: [...nodes.values()], kernels };
}

/** The rows of `ps`, each with what the hub knows of the kernel, and those that only the hub knows. */
function joined(listed: readonly IKernel[], attached: readonly IKernel[]): IKernel[] {
  const known = new Map(attached.map(row => [row.id, row]));
  const rows = listed.map(row => {
    const here = known.get(row.id);
    known.delete(row.id);
    return here
      ? { ...row, link: here.link, round_trip_ms: here.round_trip_ms, away_since: here.away_since, error: here.error, kernel_id: here.id }
      : row;
  });
  return [...rows, ...[...known.values()].map(row => ({ ...row, kernel_id: row.id }))];
}

class Node implements INodeOverview {
  constructor(readonly node: string) {}

  names: string[] = [];
  connected = false;
  state = '';
  problem: IProblem | null = null;
  gpus: IGpu[] = [];
  queue: IWaiter[] = [];
  cluster: ICluster | null = null;

  addKnown(row: Facts): void {
    this.names = [...new Set([...this.names, ...textsOf(row.names)])];
    this.connected ||= row.connected === true;
    this.state = inert(row.state);
    this.problem ??= isRecord(row.problem) ? problem(row.problem) : null;
  }

  addGpu(row: Facts, kernels: readonly IKernel[]): void {
    if (isRecord(row.error)) {
      return this.addProblem(row);
    }
    this.connected = true;
    if (isRecord(row.slurm)) {
      this.cluster = clusterOf(row.slurm);
      return;
    }
    const waiting = new Set(this.queue.map(one => `${one.place} ${one.id}`));
    this.queue.push(...queueOf(row).filter(one => !waiting.has(`${one.place} ${one.id}`)));
    const gpu = gpuOf(row);
    const holders = gpu.uuid ? kernels.filter(one => one.gpus.includes(gpu.uuid!)) : [];
    const leased = inert(recordOf(row.lease).id);
    const kernel = holders.find(one => one.id === leased) ?? holders.find(one => one.hop === this.node);
    this.gpus.push({ ...gpu, kernel: kernel?.id ?? null });
  }

  /** Takes the first error. A node that has not had the time to answer is connecting. */
  addProblem(row: Facts): void {
    const late = numberOf(row.late);
    if (late === null || late >= LATE) {
      this.problem ??= problem(row.error);
    }
  }
}
