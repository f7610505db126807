/**
 * The text of the status bar item for a kernel. Pure: no page, no network.
 */
import type { IRemoteKernel } from '../tokens';

export interface IView {
  readonly text: string;
  readonly tooltip: string;
}

/** The view of the kernel with this Jupyter kernel id; null if it is not one of ours. */
export function viewOf(kernels: readonly IRemoteKernel[], kernelId: string): IView | null {
  const kernel = kernels.find(each => each.kernel_id === kernelId);
  return kernel ? { text: textOf(kernel), tooltip: tooltipOf(kernel) } : null;
}

/** The view of a kernel while the browser cannot reach the Jupyter server. */
export function outdated(view: IView, node: string): IView {
  return {
    text: `${node}: Jupyter server out of reach`,
    tooltip: `The browser cannot reach the Jupyter server. The kernel keeps running. Last known state:\n${view.tooltip}`
  };
}

function textOf(kernel: IRemoteKernel): string {
  const trouble = troubleOf(kernel);
  return trouble ? `${kernel.node}: ${trouble}` : `${kernel.node} ${gpuCount(kernel)}`;
}

/** By the kind of error: the text for a state that does not end by itself. */
const AWAY: Partial<Record<string, string>> = {
  AuthError: 'out of reach until you sign in',
  HostKeyError: 'out of reach, its host key is not accepted'
};

/** The most important problem in a few words; '' if there is none. */
function troubleOf(kernel: IRemoteKernel): string {
  if (kernel.state === 'ended') {
    return 'ended';
  }
  if (kernel.link === 'connecting') {
    return 'connecting…';
  }
  if (kernel.link === 'away') {
    return AWAY[kernel.error?.kind ?? ''] ?? 'out of reach, reconnecting…';
  }
  if (kernel.link === 'taken') {
    return 'taken over by another computer';
  }
  return kernel.state === 'waiting' ? 'waiting for a GPU' : '';
}

function gpuCount(kernel: IRemoteKernel): string {
  const count = kernel.gpus.length;
  return count === 0 ? '(no GPU yet)' : count === 1 ? '(1 GPU)' : `(${count} GPUs)`;
}

function tooltipOf(kernel: IRemoteKernel): string {
  return [
    `Remote GPU kernel ${kernel.name} (${kernel.id})`,
    `Node: ${kernel.node}`,
    `State: ${kernel.state}`,
    `Link: ${kernel.link}`,
    ...(kernel.state === 'ended' ? endOf(kernel) : [`GPUs: ${(kernel.gpu_names ?? kernel.gpus).join(', ') || NO_GPUS}`]),
    ...(kernel.error ? [`${kernel.error.hop}: ${kernel.error.cause}`, kernel.error.remedy] : [])
  ].join('\n');
}

const NO_GPUS = 'none; the first cell takes them';

function endOf(kernel: IRemoteKernel): string[] {
  return [kernel.cause ?? '', kernel.remedy ?? '', 'The next cell that you run starts a new kernel.'].filter(Boolean);
}
