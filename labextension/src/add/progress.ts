/**
 * The progress of a probe, hop by hop. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IProblem } from '../tokens';
import type { IProbe } from './types';

export interface IHopView {
  readonly name: string;
  readonly state: 'waiting' | 'active' | 'done' | 'failed';
  /** What it does, or has done. */
  readonly text: string;
  readonly problem: IProblem | null;
}

/** All hops of the route; what is not about one of them is shown at the last one. */
export function hopViews(probe: IProbe, trans: TranslationBundle): IHopView[] {
  const last = probe.hops.length - 1;
  const indexOf = (hop: string): number => {
    const index = probe.hops.indexOf(hop);
    return index < 0 ? last : index;
  };
  const reached = Math.max(0, ...probe.steps.map(step => indexOf(step.hop)));
  const failed = probe.state === 'failed' ? (probe.error?.hop ? indexOf(probe.error.hop) : reached) : -1;
  return probe.hops.map((name, index) => {
    const state = stateOf(index, probe, reached, failed);
    return {
      name,
      state,
      text: textOf(probe, steps(probe, index, indexOf), state, trans),
      problem: state === 'failed' ? probe.error : null
    };
  });
}

function stateOf(index: number, probe: IProbe, reached: number, failed: number): IHopView['state'] {
  if (index === failed) {
    return 'failed';
  }
  if (probe.state === 'done' || index < (failed < 0 ? reached : failed)) {
    return 'done';
  }
  return failed < 0 && index === reached ? 'active' : 'waiting';
}

function steps(probe: IProbe, index: number, indexOf: (hop: string) => number): readonly { step: string; after: number }[] {
  return probe.steps.filter(step => indexOf(step.hop) === index);
}

function textOf(
  probe: IProbe,
  mine: readonly { step: string; after: number }[],
  state: IHopView['state'],
  trans: TranslationBundle
): string {
  if (state === 'waiting') {
    return trans.__('waiting');
  }
  if (state === 'failed') {
    return trans.__('failed');
  }
  if (state === 'active') {
    return mine.length ? trans.__('%1…', stepText(mine[mine.length - 1]!.step, trans)) : trans.__('connecting…');
  }
  if (!mine.length) {
    return trans.__('connected');
  }
  const next = probe.steps.find(step => step.after > mine[mine.length - 1]!.after && !mine.includes(step));
  const seconds = (next?.after ?? probe.seconds) - mine[0]!.after;
  return trans.__('done in %1 s', seconds.toFixed(1));
}

/** The hub's words for a step. */
function stepText(step: string, trans: TranslationBundle): string {
  const known: Readonly<Record<string, string>> = {
    reach: trans.__('connecting'),
    'host key': trans.__('verifying the host key'),
    'sign in': trans.__('signing in'),
    'looking for a Python with ipykernel': trans.__('looking for a Python with ipykernel'),
    'starting the agent': trans.__('starting the agent'),
    'reading the state of the GPUs': trans.__('reading the state of the GPUs'),
    'looking for Slurm': trans.__('looking for Slurm'),
    'reading the partitions (sinfo)': trans.__('reading the partitions')
  };
  return known[step] ?? step;
}
