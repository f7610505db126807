/**
 * What the panel says of a kernel. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IKernelOverview } from '../model/overview';
import type { IProblem } from '../tokens';
// The imports have a suffix, for Node's test runner.
import { basename, duration, elapsed, roundTrip } from '../format.js';
import { waitsForJob } from '../tokens.js';

/** Decides the colour of the dot, which the text repeats. */
export type Tone = 'busy' | 'idle' | 'waiting' | 'trouble' | 'off';

export interface IKernelView {
  readonly id: string;
  readonly title: string;
  /** The notebook relative to the server's root; null if the server cannot open it. */
  readonly path: string | null;
  /** Where the notebook is, and the kernel's id. */
  readonly hint: string;
  readonly tone: Tone;
  readonly state: string;
  /** Node, GPUs, and round trip. */
  readonly place: string;
  /** Whether the time that is left is short. */
  readonly isEnding: boolean;
  readonly problem: IProblem | null;
  /** The link if it is not as usual, the time that is left of its job, why it has ended, what the node says. */
  readonly note: string;
  readonly canAttach: boolean;
  readonly canInterrupt: boolean;
  readonly canRestart: boolean;
  readonly canStop: boolean;
}

/** Seconds before the end of a job in which it is shown as ending. */
const SOON = 900;
const ORDER: readonly Tone[] = ['trouble', 'busy', 'waiting', 'idle', 'off'];

/** The views of all kernels: those that need attention first, then the busy ones, then by place and name. */
export function kernelViews(trans: TranslationBundle, kernels: readonly IKernelOverview[], now: number): IKernelView[] {
  const places = new Map(kernels.map(({ id, state, place }) => [id, (state === 'waiting' && place) || 0]));
  const placeOf = ({ id }: IKernelView): number => places.get(id)!;
  return kernels
    .map(kernel => kernelView(trans, kernel, now))
    .sort(
      (a, b) =>
        ORDER.indexOf(a.tone) - ORDER.indexOf(b.tone) ||
        placeOf(a) - placeOf(b) ||
        a.title.localeCompare(b.title) ||
        compare(a.id, b.id)
    );
}

export function kernelView(trans: TranslationBundle, kernel: IKernelOverview, now: number): IKernelView {
  const [tone, state] = stateOf(trans, kernel, now);
  const left = kernel.ends_at ? kernel.ends_at - now : null;
  const rest = left === null ? '' : trans.__('%1 left of its job', duration(left, trans));
  const link = kernel.link === 'up' ? roundTrip(kernel.round_trip_ms, trans) : '';
  const runs = !['away', 'ended', 'starting'].includes(kernel.state) && kernel.link !== 'away';
  return {
    id: kernel.id,
    title: titleOf(trans, kernel),
    path: kernel.path ?? null,
    hint: [kernel.notebook || trans.__('no notebook'), trans.__('kernel %1', kernel.id)].join('\n'),
    tone,
    state,
    place: [kernel.node, gpusOf(trans, kernel), link].filter(Boolean).join(' · '),
    isEnding: left !== null && left < SOON,
    problem: kernel.error ?? null,
    note: [linkOf(trans, kernel), rest, noteOf(trans, kernel)].filter(Boolean).join(' · '),
    canAttach: runs && !kernel.kernel_id,
    canInterrupt: runs && ['busy', 'waiting'].includes(kernel.state),
    canRestart: runs,
    canStop: kernel.state !== 'ended'
  };
}

/** The name under which the user knows a kernel. */
export function titleOf(trans: TranslationBundle, kernel: Pick<IKernelOverview, 'notebook' | 'path' | 'name'>): string {
  return basename(kernel.path || kernel.notebook || '') || trans.__('%1 (no notebook)', kernel.name);
}

function stateOf(trans: TranslationBundle, kernel: IKernelOverview, now: number): [Tone, string] {
  if (kernel.state === 'ended') {
    return ['off', trans.__('ended')];
  }
  if (kernel.state === 'away' || kernel.link === 'away') {
    return ['trouble', trans.__('out of reach')];
  }
  if (kernel.state === 'busy') {
    return ['busy', trans.__('busy %1', elapsed(kernel.busy_since, now, trans)).trim()];
  }
  if (kernel.state === 'waiting') {
    const place = kernel.place ? trans.__('waits, place %1', kernel.place) : trans.__('waits');
    return ['waiting', waitsForJob(kernel) ? trans.__('waits for its job') : place];
  }
  if (kernel.state === 'starting') {
    return ['waiting', trans.__('starting')];
  }
  return kernel.state === 'detached' ? ['off', trans.__('detached')] : ['idle', trans.__('idle')];
}

function gpusOf(trans: TranslationBundle, kernel: IKernelOverview): string {
  const names = (kernel.gpu_names ?? []).map(name => name.replace(/\s*\(.*/, ''));
  const indices = names.map(name => /^GPU (\d+)$/.exec(name)?.[1]);
  if (names.length) {
    return indices.includes(undefined) ? names.join(', ') : trans.__('GPU %1', indices.join(', '));
  }
  return kernel.gpus.length ? trans._n('1 GPU', '%1 GPUs', kernel.gpus.length) : trans.__('no GPU');
}

function linkOf(trans: TranslationBundle, kernel: IKernelOverview): string {
  switch (kernel.link) {
    case 'up':
      return '';
    case 'connecting':
      return trans.__('connecting…');
    case 'away':
      return trans.__('reconnecting…');
    case 'taken':
      return trans.__('used by another computer');
    default:
      return kernel.attached_from ? trans.__('attached from %1', kernel.attached_from) : '';
  }
}

function noteOf(trans: TranslationBundle, kernel: IKernelOverview): string {
  if (kernel.state === 'ended') {
    return [kernel.cause, kernel.remedy].filter(Boolean).join(' ');
  }
  return kernel.problem ? trans.__('%1 says: %2', kernel.node, kernel.problem) : '';
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
