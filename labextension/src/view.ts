/**
 * What the status bar says about a kernel. Pure: it knows neither the page nor the network.
 */
import type { IRemoteKernel } from './tokens';

export interface IView {
  readonly text: string;
  readonly tooltip: string;
}

/** The view of the kernel with this Jupyter kernel id; null if it is not one of ours. */
export function viewOf(kernels: readonly IRemoteKernel[], kernelId: string): IView | null {
  const kernel = kernels.find(each => each.kernel_id === kernelId);
  return kernel ? { text: textOf(kernel), tooltip: tooltipOf(kernel) } : null;
}

function textOf(kernel: IRemoteKernel): string {
  const trouble = troubleOf(kernel);
  return trouble ? `${kernel.node}: ${trouble}` : `${kernel.node} ${gpuCount(kernel)}`;
}

/** In a few words what the user must know first; '' when all is well. */
function troubleOf(kernel: IRemoteKernel): string {
  if (kernel.state === 'ended') {
    return 'ended';
  }
  if (kernel.link === 'connecting') {
    return 'connecting…';
  }
  if (kernel.link === 'away') {
    return kernel.error?.kind === 'AuthError' ? 'out of reach until you sign in' : 'out of reach, reconnecting…';
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
    `GPUs: ${kernel.gpus.length > 0 ? kernel.gpus.join(', ') : 'none; taken when the first cell runs'}`,
    ...(kernel.error ? [`${kernel.error.hop}: ${kernel.error.cause}`, kernel.error.remedy] : [])
  ].join('\n');
}
