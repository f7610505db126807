/**
 * One node: its GPUs, who waits for them, its partitions, and why it cannot be reached.
 */
import React from 'react';

import type { IClusterView } from './clusterView';
import { usePanel } from './context';
import { CommandIDs } from '../tokens';
import type { IGpuView, INodeView } from './nodeView';
import { Disclosure, FailedAction, Meter, NotebookLink, Problem } from './parts';
import { QueueList } from './queueList';

interface IProps {
  readonly node: INodeView;
  readonly cluster: IClusterView | null;
  readonly now: number;
  readonly isOpen: boolean;
  readonly toggle: () => void;
}

export function NodeCard({ node, cluster, now, isOpen, toggle }: IProps): JSX.Element {
  const body = `jp-RemoteGPU-node-${node.name}`;
  return (
    <li className="jp-RemoteGPU-node" data-node={node.name}>
      <h4>
        <Disclosure isOpen={isOpen} toggle={toggle} controls={body}>
          <span className="jp-RemoteGPU-nodeName">{node.name}</span>
          <span className="jp-RemoteGPU-summary">{node.summary}</span>
        </Disclosure>
      </h4>
      {node.problem && <NodeProblem node={node} />}
      <FailedAction of={node.name} />
      {isOpen && (
        <div id={body}>
          {node.models && <p className="jp-RemoteGPU-models">{node.models}</p>}
          {cluster && <Cluster cluster={cluster} />}
          <ul className="jp-RemoteGPU-gpus">
            {node.gpus.map(gpu => (
              <Gpu key={gpu.key} gpu={gpu} now={now} />
            ))}
          </ul>
          {node.queue.length > 0 && <QueueList node={node.name} queue={node.queue} />}
        </div>
      )}
    </li>
  );
}

function NodeProblem({ node }: { node: INodeView }): JSX.Element {
  const { trans, execute, hasCommand } = usePanel();
  const { name, spec } = node;
  const problem = node.problem!;
  if (!problem.login || spec === null || !hasCommand(CommandIDs.signIn)) {
    return <Problem problem={problem} />;
  }
  return (
    // The button is the remedy, which is a command for a terminal otherwise.
    <Problem problem={{ ...problem, remedy: '' }}>
      <button
        type="button"
        className="jp-RemoteGPU-button jp-mod-accept"
        onClick={() => execute(CommandIDs.signIn, { name: spec })}
      >
        {trans.__('Sign in to %1…', name)}
      </button>
    </Problem>
  );
}

function Gpu({ gpu, now }: { gpu: IGpuView; now: number }): JSX.Element {
  const { trans } = usePanel();
  return (
    <li className="jp-RemoteGPU-device" data-holder={gpu.holder} data-gpu={gpu.key}>
      <div className="jp-RemoteGPU-row" title={gpu.hint}>
        <span className="jp-RemoteGPU-gpuLabel">{gpu.label}</span>
        <NotebookLink title={gpu.who} path={gpu.path} hint={gpu.hint} />
        <span className="jp-RemoteGPU-state">{gpu.since}</span>
      </div>
      <Meter label={trans.__('mem')} name={trans.__('Memory of %1', gpu.label)} meter={gpu.memory} now={now} />
      <Meter label={trans.__('use')} name={trans.__('Utilization of %1', gpu.label)} meter={gpu.usage} now={now} />
      {gpu.users && <p className="jp-RemoteGPU-reason jp-RemoteGPU-users">{gpu.users}</p>}
      {gpu.reason && <p className="jp-RemoteGPU-reason">{gpu.reason}</p>}
    </li>
  );
}

function Cluster({ cluster }: { cluster: IClusterView }): JSX.Element {
  const { trans } = usePanel();
  return (
    <>
      <ul className="jp-RemoteGPU-partitions" aria-label={trans.__('Partitions')}>
        {cluster.partitions.map(each => (
          <li key={each.key} className="jp-RemoteGPU-partition">
            <span className="jp-RemoteGPU-name">{[each.name, each.type].filter(Boolean).join(' · ')}</span>
            <span className="jp-RemoteGPU-bar" aria-hidden>
              <span className="jp-RemoteGPU-fill" style={{ width: `${Math.round((each.part ?? 0) * 100)}%` }} />
            </span>
            <span className="jp-RemoteGPU-number">{each.text}</span>
          </li>
        ))}
      </ul>
      {cluster.jobs.length > 0 && (
        <ul className="jp-RemoteGPU-jobs" aria-label={trans.__('My jobs')}>
          {cluster.jobs.map(job => (
            <li key={job.id} className="jp-RemoteGPU-job">
              <div className="jp-RemoteGPU-row">
                <span className="jp-RemoteGPU-gpuLabel">{trans.__('job %1', job.id)}</span>
                <span className="jp-RemoteGPU-name" title={job.name}>
                  {job.name}
                </span>
                <span className="jp-RemoteGPU-state">{job.state}</span>
              </div>
              <p className="jp-RemoteGPU-reason">{job.detail}</p>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
