/**
 * What the panel says of a cluster with Slurm. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { ICluster, IJob, IPartition } from '../model/overview';
// The import has a suffix, for Node's test runner.
import { duration, share } from '../format.js';

export interface IPartitionView {
  readonly key: string;
  readonly name: string;
  readonly type: string;
  readonly text: string;
  /** The part that is in use. */
  readonly part: number | null;
}

export interface IJobView {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  /** Where it runs and until when, or why it waits. */
  readonly detail: string;
}

export interface IClusterView {
  readonly partitions: readonly IPartitionView[];
  readonly jobs: readonly IJobView[];
}

export function clusterView(trans: TranslationBundle, cluster: ICluster, now: number): IClusterView {
  return {
    partitions: (cluster.partitions ?? []).flatMap(each => partitionViews(trans, each)),
    jobs: (cluster.jobs ?? []).map(each => jobView(trans, each, now))
  };
}

/** A row for each type of its GPUs. */
function partitionViews(trans: TranslationBundle, partition: IPartition): IPartitionView[] {
  const name = partition.name ?? '';
  if (!partition.gpus?.length) {
    return [{ key: name, name, type: '', text: trans.__('no GPU'), part: null }];
  }
  return partition.gpus.map(({ type, free, total }) => ({
    key: `${name} ${type ?? ''}`,
    name: partition.up === false ? trans.__('%1 (down)', name) : name,
    type: type ?? '',
    text: trans.__('%1 of %2 free', free ?? '?', total ?? '?'),
    part: free === undefined || total === undefined ? null : share(total - free, total)
  }));
}

function jobView(trans: TranslationBundle, job: IJob, now: number): IJobView {
  const waits = job.state === 'PENDING';
  const place = waits && job.place ? trans.__('place %1', job.place) : '';
  const start = waits && job.start_estimate ? trans.__('starts in about %1', duration(job.start_estimate - now, trans)) : '';
  const left = !waits && job.end_time ? trans.__('%1 left', duration(job.end_time - now, trans)) : '';
  const where = waits ? job.reason : (job.nodes ?? []).join(', ');
  return {
    id: job.id ?? '',
    name: job.name ?? '',
    state: (job.state ?? '').toLowerCase(),
    detail: [where, place, start, left].filter(Boolean).join(' · ')
  };
}
