/**
 * The GPUs of a kernel in the last overview. Pure.
 */
import type { IGpu, IOverview } from '../model/overview';
import type { IRemoteKernel } from '../tokens';

/** In seconds: an older overview says nothing about now. */
const RECENT = 30;

/** The GPUs that the kernel has, if their use is known. */
export function usesOf(kernel: IRemoteKernel, overview: IOverview | null, now: number): readonly IGpu[] {
  if (!overview || now - overview.time > RECENT) {
    return [];
  }
  return overview.nodes.flatMap(node => node.gpus.filter(gpu => gpu.kernel === kernel.id));
}
