/**
 * What the form says about a machine that was found. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import { memory } from '../format.js';
import type { IFields, IFound, IGpu, IPartition, IPython } from './types';

/** The Pythons that can be chosen, the best one first. */
export function choices(found: IFound): readonly IPython[] {
  return [found.python, ...found.others.filter(python => python.usable)];
}

/** Those that cannot. */
export function unfit(found: IFound): readonly IPython[] {
  return found.others.filter(python => !python.usable);
}

/** “Python 3.12.4, ipykernel 6.29.5”, as far as it is known. */
export function versions(python: IPython, trans: TranslationBundle): string {
  const parts = [python.version && trans.__('Python %1', python.version)];
  return [...parts, python.ipykernel && trans.__('ipykernel %1', python.ipykernel)].filter(Boolean).join(', ');
}

/** The cells of a GPU's row: its name, memory, use, and whether it is free. */
export function gpuRow(gpu: IGpu, trans: TranslationBundle): readonly string[] {
  const use = typeof gpu.utilization === 'number' ? trans.__('%1 %', gpu.utilization) : trans.__('unknown');
  const free = gpu.free ? trans.__('free') : (gpu.reason ?? trans.__('not free'));
  return [
    `${gpu.index ?? ''} ${gpu.name ?? ''}`.trim(),
    memory(gpu.memory_used_mib, gpu.memory_total_mib, trans) || trans.__('unknown'),
    use,
    free
  ];
}

/** “gpu (default): at most 1-00:00:00; 2 a100, 2 free”. */
export function partitionText(partition: IPartition, trans: TranslationBundle): string {
  const name = partition.default ? trans.__('%1 (default)', partition.name) : partition.name;
  const state = partition.up ? [] : [trans.__('not in use')];
  const gpus = partition.gpus.map(gpu => trans.__('%1 %2, %3 free', gpu.total, gpu.type || trans.__('GPUs'), gpu.free));
  return trans.__(
    '%1: at most %2; %3',
    name,
    partition.time_limit,
    [...state, ...(gpus.length ? gpus : [trans.__('no GPUs')])].join('; ')
  );
}

/** The types of GPU in the chosen partition, or in all. */
export function gpuTypes(partitions: readonly IPartition[], chosen: string): readonly string[] {
  const names = chosen.split(',');
  const fitting = partitions.filter(one => names.includes(one.name));
  const types = (fitting.length ? fitting : partitions).flatMap(one => one.gpus.map(gpu => gpu.type));
  return [...new Set(types)].filter(Boolean).sort();
}

/** What the user should know of the machine before adding it. */
export function notes(found: IFound, fields: IFields, trans: TranslationBundle): readonly string[] {
  const texts: string[] = [];
  if (found.home_problem) {
    texts.push(trans.__("The machine's home folder is not writable: %1", found.home_problem));
  }
  if (found.gpus_error) {
    texts.push(trans.__('The GPUs could not be listed: %1', found.gpus_error));
  } else if (!found.slurm && !found.gpus.length) {
    texts.push(trans.__('This machine has no GPU. With 0 GPUs, kernels run on it without one.'));
  } else if (found.gpus_problem && fields.gpus !== '0') {
    texts.push(trans.__('A kernel cannot get these GPUs here: %1', found.gpus_problem));
  }
  return [...texts, ...found.unseen.map(place => trans.__('Not searched for a Python: %1', place))];
}
