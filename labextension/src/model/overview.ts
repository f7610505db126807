/**
 * The types of the response to GET overview.
 *
 * The server extension has validated what comes from nodes; it is still the text of others, and shown as text only.
 */
import type { IGpuUse, IProblem, IRemoteKernel } from '../tokens';

export interface IOverview {
  /** The server's clock, in seconds since 1970: durations are counted from here, not from the browser's clock. */
  readonly time: number;
  readonly nodes: readonly INodeOverview[];
  readonly kernels: readonly IKernelOverview[];
}

export interface INodeOverview {
  readonly node: string;
  /** The kernelspecs that lead there, and how JupyterLab shows them. */
  readonly names: readonly string[];
  readonly display_names?: readonly string[];
  readonly connected: boolean;
  readonly state?: string;
  readonly problem: IProblem | null;
  readonly gpus: readonly IGpu[];
  readonly queue: readonly IWaiter[];
  /** Of a login node of Slurm. */
  readonly cluster: ICluster | null;
}

/** A row of `gpus --json`, with the last ten minutes. */
export interface IGpu extends IGpuUse {
  readonly index?: number;
  readonly uuid?: string;
  readonly name?: string;
  readonly lease?: ILease | null;
  readonly free?: boolean;
  /** Why it is not free. */
  readonly reason?: string;
  readonly warning?: string;
  /** The machine, where the node is a login node and this a GPU of a job. */
  readonly node?: string;
  /** [time, memory_used_mib, utilization], oldest first. */
  readonly history?: readonly Sample[];
  /** The id of my kernel that has it. */
  readonly kernel?: string | null;
}

export type Sample = readonly [number, number | null, number | null];

export interface ILease {
  readonly user?: string;
  readonly id?: string;
  readonly since?: number;
  readonly idle_since?: number;
}

/** Who waits for GPUs. */
export interface IWaiter {
  readonly user?: string;
  /** How many GPUs it waits for. */
  readonly count?: number;
  readonly since?: number;
  readonly place?: number;
  readonly mine?: boolean;
  /** Of my own kernels only. */
  readonly id?: string | null;
  readonly priority?: number | null;
  readonly notebook?: string | null;
}

/** A row of `ps --json`, with what this server knows. */
export interface IKernelOverview extends IRemoteKernel {
  readonly notebook?: string;
  /** The notebook relative to the server's root, if it is below it. */
  readonly path?: string | null;
  readonly attached?: boolean;
  /** The computer to which it is attached, if that is another one. */
  readonly attached_from?: string | null;
  readonly since?: number;
  readonly busy_since?: number | null;
  readonly round_trip_ms?: number | null;
  /** The end of its Slurm job. */
  readonly ends_at?: number | null;
  readonly priority?: number | null;
  readonly place?: number | null;
  readonly waiting_text?: string;
  /** Of the node, about this kernel. */
  readonly problem?: string | null;
}

export interface ICluster {
  readonly partitions?: readonly IPartition[];
  readonly jobs?: readonly IJob[];
}

export interface IPartition {
  readonly name?: string;
  readonly default?: boolean;
  readonly up?: boolean;
  readonly gpus?: readonly ICount[];
}

/** The GPUs of one type. */
export interface ICount {
  readonly type?: string;
  readonly total?: number;
  readonly free?: number;
}

export interface IJob {
  readonly id?: string;
  readonly name?: string;
  readonly partition?: string;
  readonly state?: string;
  readonly reason?: string;
  /** Among the pending jobs of its partition; 0 if unknown. */
  readonly place?: number;
  readonly start_estimate?: number | null;
  readonly end_time?: number | null;
  readonly nodes?: readonly string[];
}
