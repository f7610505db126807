/**
 * Ids, constants, and the types of the server's responses. No side effects.
 */

/** The commands. Their plugins may be missing. */
export namespace CommandIDs {
  /** Opens the panel. */
  export const show = 'jupyter-gpu-kernel:open-panel';
  export const refresh = 'jupyter-gpu-kernel:refresh';
  /** Opens the form for a new remote GPU. */
  export const add = 'jupyter-gpu-kernel:add';
  /** Removes the kernelspec `name`, or one that the user chooses. */
  export const remove = 'jupyter-gpu-kernel:remove';
  /** Signs in to the node of the kernelspec `name`. */
  export const signIn = 'jupyter-gpu-kernel:sign-in';
  /** Switches the notifications about long cells. */
  export const toggleLongCells = 'jupyter-gpu-kernel:toggle-long-cells';
  // With {id}: of a kernel; without, the kernel of the current notebook.
  export const open = 'jupyter-gpu-kernel:open-notebook';
  export const attach = 'jupyter-gpu-kernel:attach';
  export const interrupt = 'jupyter-gpu-kernel:interrupt';
  export const restart = 'jupyter-gpu-kernel:restart';
  export const stop = 'jupyter-gpu-kernel:stop';
  export const log = 'jupyter-gpu-kernel:log';
}

/** Below the server's base URL, as all paths. */
export const API_PATH = 'jupyter-gpu-kernel/api';
export const KERNELS_PATH = `${API_PATH}/kernels`;
export const NODES_PATH = `${API_PATH}/nodes`;

/** The domain of translated texts. */
export const TRANSLATION_DOMAIN = 'jupyter_gpu_kernel';

/** A kernelspec whose metadata has this key is ours. */
export const METADATA_KEY = 'jupyter_gpu_kernel';

export type KernelState = 'starting' | 'waiting' | 'idle' | 'busy' | 'away' | 'detached' | 'ended';

export type LinkState = 'up' | 'away' | 'taken' | 'lost' | 'connecting';

/** An error: the hop, the cause, the remedy. */
export interface IProblem {
  readonly kind: string;
  readonly hop: string;
  readonly cause: string;
  readonly remedy: string;
  /** Whether the command `login` helps. */
  readonly login?: boolean;
}

/** Whether signing in helps. Older hubs do not say so. */
export function isHelpedByLogin(problem: IProblem | null | undefined): boolean {
  return problem?.login ?? problem?.kind === 'AuthError';
}

/** One element of the response to GET `NODES_PATH`. */
export interface INode {
  readonly node: string;
  /** The names of the kernelspecs that lead to this node. */
  readonly names?: readonly string[];
  readonly connected: boolean;
  readonly problem: IProblem | null;
  /** Our command, for a terminal of the Jupyter server. */
  readonly program: string;
}

/** One element of the response to GET `KERNELS_PATH`. */
export interface IRemoteKernel {
  /** JUPYTER_GPU_KERNEL_ID, the ID on the command line. */
  readonly id: string;
  /** The kernel's id in the Jupyter server, if it has one. */
  readonly kernel_id: string | null;
  /** The kernelspec's name. */
  readonly name: string;
  readonly node: string;
  readonly state: KernelState;
  /** null: no front end of this computer has it. */
  readonly link: LinkState | null;
  /** Why the kernel cannot be reached, or did not start. */
  readonly error?: IProblem | null;
  /** Why a kernel has ended, and what to do. */
  readonly cause?: string;
  readonly remedy?: string;
  /** The UUIDs of its GPUs. */
  readonly gpus: readonly string[];
  /** Names such as “GPU 0 (NVIDIA A100)”. Older keepers do not send them. */
  readonly gpu_names?: readonly string[];
  /** Of a busy kernel. Times are in seconds since 1970. */
  readonly busy_since?: number | null;
  /** Since when its node is out of reach, if it is. */
  readonly away_since?: number | null;
  /** The round trip of the link. */
  readonly round_trip_ms?: number | null;
  /** The end of its Slurm job. */
  readonly ends_at?: number | null;
  /** Its Slurm job. */
  readonly job?: { readonly id?: string; readonly state?: string } | null;
  /** Its GPUs, if that was asked for, and is known. */
  readonly gpu_use?: readonly IGpuUse[] | null;
}

/** Whether its first cell waits until Slurm starts its job. */
export function waitsForJob(kernel: IRemoteKernel): boolean {
  return kernel.state === 'waiting' && kernel.job?.state === 'PENDING';
}

/** The use of a GPU; null is unknown. */
export interface IGpuUse {
  readonly memory_used_mib?: number | null;
  readonly memory_total_mib?: number | null;
  readonly utilization?: number | null;
  readonly processes?: readonly IProcess[];
}

/** A process on a GPU. */
export interface IProcess {
  readonly pid?: number;
  readonly user?: string;
  readonly memory_mib?: number | null;
  readonly name?: string;
  readonly since?: number;
  /** Whether it is the user's. */
  readonly mine?: boolean;
}
