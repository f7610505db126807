/**
 * The content of the panel: my kernels, and all nodes.
 */
import { addIcon } from '@jupyterlab/ui-components';
import React from 'react';

import type { IOverview } from '../model/overview';
import type { IModelProblem } from '../model/tokens';
import { clusterView } from './clusterView';
import { usePanel } from './context';
import { CommandIDs } from '../tokens';
import { KernelCard } from './kernelCard';
import { kernelViews } from './kernelView';
import { NodeCard } from './nodeCard';
import { nodeView, totalOf } from './nodeView';
import { IconButton } from './parts';

interface IProps {
  readonly overview: IOverview | null;
  readonly problem: IModelProblem | null;
}

export function Panel({ overview, problem }: IProps): JSX.Element {
  const { trans, execute, hasCommand } = usePanel();
  const isEmpty = overview !== null && !overview.nodes.length && !overview.kernels.length;
  return (
    <>
      <div className="jp-RemoteGPU-header">
        <h2>{trans.__('Remote GPUs')}</h2>
        <span className="jp-RemoteGPU-summary">{overview ? totalOf(trans, overview.nodes) : ''}</span>
        {hasCommand(CommandIDs.add) && (
          <IconButton icon={addIcon} label={trans.__('Add a remote GPU…')} onClick={() => execute(CommandIDs.add)} />
        )}
      </div>
      {problem && <Unavailable problem={problem} />}
      {!overview && !problem && <p className="jp-RemoteGPU-note">{trans.__('Asking the nodes…')}</p>}
      {isEmpty && <Empty />}
      {overview && !isEmpty && <Content overview={overview} />}
    </>
  );
}

function Content({ overview }: { overview: IOverview }): JSX.Element {
  const { trans, collapsed } = usePanel();
  const { time, nodes } = overview;
  const kernels = kernelViews(trans, overview.kernels, time);
  return (
    <>
      <section aria-label={trans.__('My kernels')}>
        <h3>{trans.__('My kernels')}</h3>
        {!kernels.length && <p className="jp-RemoteGPU-note">{trans.__('None runs.')}</p>}
        <ul>
          {kernels.map(kernel => (
            <KernelCard key={kernel.id} kernel={kernel} />
          ))}
        </ul>
      </section>
      <section aria-label={trans.__('Nodes')}>
        <h3>{trans.__('Nodes')}</h3>
        <ul>
          {nodes.map(node => (
            <NodeCard
              key={node.node}
              node={nodeView(trans, node, overview.kernels, time)}
              cluster={node.cluster && clusterView(trans, node.cluster, time)}
              now={time}
              isOpen={!collapsed.has(node.node)}
              toggle={() => collapsed.toggle(node.node)}
            />
          ))}
        </ul>
      </section>
    </>
  );
}

function Empty(): JSX.Element {
  const { trans, execute, hasCommand } = usePanel();
  return (
    <div className="jp-RemoteGPU-empty">
      <p>
        {trans.__(
          'No machine has been added yet. Add one that you reach by SSH: its GPUs appear here, and it can be chosen as the kernel of any notebook.'
        )}
      </p>
      {hasCommand(CommandIDs.add) ? (
        <button
          type="button"
          className="jp-RemoteGPU-button jp-mod-accept"
          onClick={() => execute(CommandIDs.add)}
        >
          {trans.__('Add a remote GPU…')}
        </button>
      ) : (
        <code>jupyter gpu-kernel add USER@HOST</code>
      )}
    </div>
  );
}

function Unavailable({ problem }: { problem: IModelProblem }): JSX.Element {
  const { trans } = usePanel();
  const texts = {
    unreachable: trans.__('The browser cannot reach the Jupyter server. Kernels keep running; what is shown is the last known state.'),
    missing: trans.__('The server extension jupyter_gpu_kernel is not loaded. “jupyter server extension list” says why; reload this page afterwards.'),
    refused: trans.__('The Jupyter server could not answer: %1', problem.message)
  };
  return (
    <div role="status" className="jp-RemoteGPU-problem">
      <p>{texts[problem.kind]}</p>
    </div>
  );
}
