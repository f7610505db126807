/**
 * Which kernelspecs are ours. Pure: no page, no network.
 */
import type { Kernel, KernelSpec } from '@jupyterlab/services';

// The import has a suffix, for Node's test runner.
import { METADATA_KEY } from './tokens.js';

type Specs = KernelSpec.ISpecModels | null;

/** Whether a kernel has one of our kernelspecs; false while the kernelspecs are not known. */
export function isOurs(specs: Specs, kernel: Pick<Kernel.IModel, 'name'>): boolean {
  return specs?.kernelspecs[kernel.name]?.metadata?.[METADATA_KEY] !== undefined;
}

/** The name of our kernelspec with this display name, if there is one. */
export function ourSpec(specs: Specs, displayName: string): string | undefined {
  const named = Object.values(specs?.kernelspecs ?? {}).filter(spec => spec?.display_name === displayName);
  return named.find(spec => isOurs(specs, spec!))?.name;
}
