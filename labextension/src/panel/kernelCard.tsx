/**
 * One kernel of the user, with what can be done to it.
 */
import { closeIcon, linkIcon, listIcon, refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import type { LabIcon } from '@jupyterlab/ui-components';
import React from 'react';

import { usePanel } from './context';
import { CommandIDs } from '../tokens';
import type { IKernelView } from './kernelView';
import { FailedAction, IconButton, NotebookLink, Problem } from './parts';

export function KernelCard({ kernel }: { kernel: IKernelView }): JSX.Element {
  const { actions } = usePanel();
  const pending = actions.pending(kernel.id);
  return (
    <li className="jp-RemoteGPU-kernel" data-kernel={kernel.id} aria-busy={pending !== '' || undefined}>
      <div className="jp-RemoteGPU-row">
        <span className="jp-RemoteGPU-dot" data-tone={kernel.tone} aria-hidden />
        <NotebookLink title={kernel.title} path={kernel.path} hint={kernel.hint} />
        <span className="jp-RemoteGPU-state">{pending || kernel.state}</span>
      </div>
      <div className="jp-RemoteGPU-row jp-RemoteGPU-minor">
        <span className="jp-RemoteGPU-place" title={kernel.place}>
          {kernel.place}
        </span>
        <KernelButtons kernel={kernel} isDisabled={pending !== ''} />
      </div>
      {kernel.note && (
        <p className="jp-RemoteGPU-note" data-ending={kernel.isEnding || undefined}>
          {kernel.note}
        </p>
      )}
      {kernel.problem && <Problem problem={kernel.problem} />}
      <FailedAction of={kernel.id} />
    </li>
  );
}

function KernelButtons(props: { kernel: IKernelView; isDisabled: boolean }): JSX.Element {
  const { trans, execute, interrupt } = usePanel();
  const { kernel, isDisabled } = props;
  const { id, title } = kernel;
  const button = (icon: LabIcon, label: string, command: string | (() => void), isEnabled: boolean): JSX.Element => (
    <IconButton
      icon={icon}
      label={label}
      isDisabled={isDisabled || !isEnabled}
      onClick={() => (typeof command === 'string' ? execute(command, { id }) : command())}
    />
  );
  return (
    <div className="jp-RemoteGPU-buttons" role="group" aria-label={trans.__('Actions on %1', title)}>
      {kernel.canAttach && button(linkIcon, trans.__('Attach %1', title), CommandIDs.attach, true)}
      {button(stopIcon, trans.__('Interrupt %1', title), () => interrupt(id), kernel.canInterrupt)}
      {button(refreshIcon, trans.__('Restart %1…', title), CommandIDs.restart, kernel.canRestart)}
      {button(listIcon, trans.__('Log of %1', title), CommandIDs.log, true)}
      {button(closeIcon, trans.__('Stop %1…', title), CommandIDs.stop, kernel.canStop)}
    </div>
  );
}
