/**
 * What the GPUs of a kernel do. Pure.
 */
import type { IOverview } from '../model/overview';
import type { IGpuUse, IRemoteKernel } from '../tokens';

/** In seconds: an older overview says nothing about now. */
const RECENT = 30;

/** The GPUs that the kernel has, if their use is known: from the kernel's row, or else from the last overview. */
export function usesOf(kernel: IRemoteKernel, overview: IOverview | null, now: number): readonly IGpuUse[] {
  if (kernel.gpu_use) {
    return kernel.gpu_use;
  }
  if (!overview || now - overview.time > RECENT) {
    return [];
  }
  return overview.nodes.flatMap(node => node.gpus.filter(gpu => gpu.kernel === kernel.id));
}
