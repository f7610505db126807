/**
 * Ids, constants, and the types of the server's responses. No side effects.
 */

export const PLUGIN_ID = 'jupyter-gpu-kernel:status';

export const MODEL_PLUGIN_ID = 'jupyter-gpu-kernel:model';

export const PANEL_PLUGIN_ID = 'jupyter-gpu-kernel:panel';

export const NOTEBOOK_PLUGIN_ID = 'jupyter-gpu-kernel:notebook';

export const RUNNING_PLUGIN_ID = 'jupyter-gpu-kernel:running';

export const LONG_CELLS_PLUGIN_ID = 'jupyter-gpu-kernel:long-cells';

export const SIGN_IN_PLUGIN_ID = 'jupyter-gpu-kernel:sign-in';

export const OUTPUTS_PLUGIN_ID = 'jupyter-gpu-kernel:outputs';

export const ADD_PLUGIN_ID = 'jupyter-gpu-kernel:add';

/** The command that opens the form for a new remote GPU. */
export const ADD = 'jupyter-gpu-kernel:add';

/** The command that removes the kernelspec `name`, or one that the user chooses. */
export const REMOVE = 'jupyter-gpu-kernel:remove';

export const PROMPTS_PLUGIN_ID = 'jupyter-gpu-kernel:prompts';

/** The schema of the event that there are other questions than before. */
export const PROMPTS_EVENT = 'https://events.jupyter.org/jupyter_gpu_kernel/prompts/v1';

export const WAITING_PLUGIN_ID = 'jupyter-gpu-kernel:waiting';

/** The schema of the event that other kernels than before wait for a sign-in. */
export const SIGN_INS_EVENT = 'https://events.jupyter.org/jupyter_gpu_kernel/sign_ins/v1';

/** The command that opens the panel. */
export const OPEN_PANEL = 'jupyter-gpu-kernel:open-panel';

/** The command that signs in to the node of the kernelspec `name`. */
export const SIGN_IN = 'jupyter-gpu-kernel:sign-in';

/** The command that switches the notifications about long cells. */
export const TOGGLE_LONG_CELLS = 'jupyter-gpu-kernel:toggle-long-cells';

/** Below the server's base URL. */
export const API_PATH = 'jupyter-gpu-kernel/api';

/** Below the server's base URL. */
export const KERNELS_PATH = 'jupyter-gpu-kernel/api/kernels';

/** Below the server's base URL. */
export const NODES_PATH = 'jupyter-gpu-kernel/api/nodes';

/** Below the server's base URL. */
export const OVERVIEW_PATH = 'jupyter-gpu-kernel/api/overview';

/** Below the server's base URL. */
export const PROMPTS_PATH = 'jupyter-gpu-kernel/api/prompts';

/** Below the server's base URL. */
export const SIGN_INS_PATH = 'jupyter-gpu-kernel/api/sign-ins';

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
  /** Its GPUs, if that was asked for, and is known. */
  readonly gpu_use?: readonly IGpuUse[] | null;
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
