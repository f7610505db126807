/**
 * What the form sends and gets. No side effects.
 */
import type { IProblem } from '../tokens';

/** A host of the user's ssh configuration. */
export interface IHost {
  readonly name: string;
  readonly user: string;
  /** null: the configuration could not be read in time. */
  readonly port: number | null;
  readonly jumps: readonly string[];
}

/** The fields of the form, as the user sees them. */
export interface IFields {
  readonly destination: string;
  readonly jumps: string;
  readonly identity: string;
  readonly config: string;
  readonly setup: string;
  readonly cwd: string;
  /** '': the best one. */
  readonly python: string;
  readonly gpus: string;
  readonly slurm: boolean;
  readonly partition: string;
  readonly gpuType: string;
  readonly time: string;
  readonly cpus: string;
  readonly mem: string;
  readonly account: string;
  readonly qos: string;
  readonly name: string;
  readonly replace: boolean;
}

/** The body of POST probes. */
export interface IProbeRequest {
  readonly destination: string;
  readonly jumps: string;
  readonly identity: string;
  readonly config: string;
  readonly settings: Readonly<Record<string, unknown>>;
}

export interface IPython {
  readonly path: string;
  readonly version: string;
  readonly ipykernel: string;
  readonly why_not?: string;
  /** Of another one than the best: whether it can be chosen. */
  readonly usable?: boolean;
}

export interface IGpu {
  readonly index: number | null;
  readonly name: string | null;
  readonly memory_used_mib: number | null;
  readonly memory_total_mib: number | null;
  readonly utilization: number | null;
  readonly free: boolean | null;
  readonly reason: string | null;
}

export interface IPartition {
  readonly name: string;
  readonly default: boolean;
  readonly up: boolean;
  readonly time_limit: string;
  readonly nodes: number;
  readonly gpus: readonly { type: string; per_node: number; total: number; free: number }[];
}

export interface ISlurm {
  readonly version: string;
  readonly partitions: readonly IPartition[];
  readonly chosen: { readonly partition: string; readonly time?: string; readonly gpu_type?: string };
  readonly notes: readonly string[];
  readonly test: string;
}

export interface IFound {
  readonly name: string;
  readonly python: IPython;
  readonly others: readonly IPython[];
  readonly unseen: readonly string[];
  readonly gpus: readonly IGpu[];
  readonly gpus_error: string | null;
  readonly gpus_problem: string;
  readonly home_problem: string;
  readonly slurm?: ISlurm;
}

/** The answer to GET probes/ID. */
export interface IProbe {
  readonly id: string;
  readonly state: 'running' | 'done' | 'failed';
  readonly hops: readonly string[];
  readonly steps: readonly { hop: string; step: string; after: number }[];
  /** Since its start. */
  readonly seconds: number;
  readonly error: IProblem | null;
  /** The setting that the error is about. */
  readonly field: string;
  /** A command that makes an environment for kernels, where that would help; or ''. */
  readonly command: string;
  readonly found: IFound | null;
}

/** One of our kernelspecs. */
export interface ISpec {
  readonly name: string;
  readonly display_name: string;
  /** Null for one that cannot be used; `problem` says why. */
  readonly settings: { readonly route: readonly string[] } | null;
  readonly problem?: string | null;
}

/** Where a kernelspec leads, or what is wrong with it. */
export function wayOf(spec: ISpec): string {
  return spec.problem || (spec.settings?.route ?? []).join(' → ');
}

/** The answer to POST kernelspecs. */
export interface IWritten extends ISpec {
  readonly shadowed_by: string;
}

/** The error of a failed request. */
export class Refusal extends Error {
  constructor(
    readonly problem: IProblem,
    /** What of the form it is about; '' if nothing. */
    readonly field = '',
    readonly replaceable = false
  ) {
    super(problem.cause);
  }
}

/** The requests of the form. All reject with `Refusal`. */
export interface IAddApi {
  hosts(config: string): Promise<readonly IHost[]>;
  specs(): Promise<readonly ISpec[]>;
  start(request: IProbeRequest): Promise<IProbe>;
  probe(id: string): Promise<IProbe>;
  cancel(id: string): Promise<void>;
  write(probe: string, name: string, replace: boolean): Promise<IWritten>;
}
