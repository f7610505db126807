/**
 * Ids, constants and the shape of the server's answers. Nothing here has side effects.
 */

export const PLUGIN_ID = 'jupyter-gpu-kernel:status';

export const SIGN_IN_PLUGIN_ID = 'jupyter-gpu-kernel:sign-in';

export const OUTPUTS_PLUGIN_ID = 'jupyter-gpu-kernel:outputs';

/** Below the server's base URL. */
export const KERNELS_PATH = 'jupyter-gpu-kernel/api/kernels';

/** Below the server's base URL. */
export const NODES_PATH = 'jupyter-gpu-kernel/api/nodes';

/** A kernelspec whose metadata has this key is ours. */
export const METADATA_KEY = 'jupyter_gpu_kernel';

export type KernelState = 'starting' | 'waiting' | 'idle' | 'busy' | 'away' | 'detached' | 'ended';

export type LinkState = 'up' | 'away' | 'taken' | 'lost' | 'connecting';

/** A message of ours: which hop, what happened, what to do. */
export interface IProblem {
  readonly kind: string;
  readonly hop: string;
  readonly cause: string;
  readonly remedy: string;
  /** Whether our command `login` would help. */
  readonly login?: boolean;
}

/** One element of the answer to GET `NODES_PATH`. */
export interface INode {
  readonly node: string;
  /** Of the kernelspecs that led there. */
  readonly names?: readonly string[];
  readonly connected: boolean;
  readonly problem: IProblem | null;
  /** How one types our command in a terminal of the Jupyter server. */
  readonly program: string;
}

/** One element of the answer to GET `KERNELS_PATH`. */
export interface IRemoteKernel {
  /** JUPYTER_GPU_KERNEL_ID: what the command line calls ID. */
  readonly id: string;
  /** The Jupyter server's own id of the kernel, if it has one. */
  readonly kernel_id: string | null;
  /** The kernelspec's name. */
  readonly name: string;
  readonly node: string;
  readonly state: KernelState;
  readonly link: LinkState;
  /** Why it cannot be reached, or why it never came up. */
  readonly error?: IProblem | null;
  /** Of a kernel that has ended: why, and what would help. */
  readonly cause?: string;
  readonly remedy?: string;
  /** UUIDs of the GPUs it holds. */
  readonly gpus: readonly string[];
  /** What users call them: “GPU 0 (NVIDIA A100)”. Keepers of older versions do not tell. */
  readonly gpu_names?: readonly string[];
}
