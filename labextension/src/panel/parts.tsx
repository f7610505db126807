/**
 * The small parts of the panel: buttons, meters, problems.
 */
import type { LabIcon } from '@jupyterlab/ui-components';
import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import React from 'react';

import type { IProblem } from '../tokens';
import { usePanel } from './context';
import { pathsOf } from './curve';
import type { IMeter } from './nodeView';

const CURVE = { width: 60, height: 14 };

export function IconButton(props: {
  icon: LabIcon;
  label: string;
  isDisabled?: boolean;
  className?: string;
  onClick: () => void;
}): JSX.Element {
  const { icon, label, isDisabled, className, onClick } = props;
  // Not “disabled”: the focus would be lost when a button that has it is disabled.
  return (
    <button
      type="button"
      className={`jp-RemoteGPU-iconButton ${className ?? ''}`}
      title={label}
      aria-label={label}
      aria-disabled={isDisabled || undefined}
      onClick={isDisabled ? undefined : onClick}
    >
      <icon.react tag="span" elementSize="normal" />
    </button>
  );
}

/** A bar, and the curve of the last ten minutes. */
export function Meter(props: { label: string; name: string; meter: IMeter; now: number }): JSX.Element {
  const { label, name, meter, now } = props;
  const percent = Math.round((meter.part ?? 0) * 100);
  const { line, area } = pathsOf(meter.values, now, CURVE);
  return (
    <div className="jp-RemoteGPU-meter">
      <span className="jp-RemoteGPU-meterLabel" aria-hidden>
        {label}
      </span>
      <span
        className="jp-RemoteGPU-bar"
        role="meter"
        aria-label={name}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={percent}
        aria-valuetext={meter.text}
      >
        <span className="jp-RemoteGPU-fill" style={{ width: `${percent}%` }} />
      </span>
      <svg
        className="jp-RemoteGPU-curve"
        viewBox={`0 0 ${CURVE.width} ${CURVE.height}`}
        preserveAspectRatio="none"
        aria-hidden
      >
        <path className="jp-mod-area" d={area} />
        <path d={line} />
      </svg>
      <span className="jp-RemoteGPU-number" aria-hidden>
        {meter.text}
      </span>
    </div>
  );
}

/** An error: the hop, the cause, the remedy. */
export function Problem(props: { problem: IProblem; children?: React.ReactNode }): JSX.Element {
  const { hop, cause, remedy } = props.problem;
  return (
    <div className="jp-RemoteGPU-problem">
      <p>
        {hop && <strong>{hop}: </strong>}
        {cause}
      </p>
      {remedy && <p className="jp-RemoteGPU-remedy">{remedy}</p>}
      {props.children}
    </div>
  );
}

/** Why the last action failed, until the user dismisses it. */
export function FailedAction(props: { of: string }): JSX.Element | null {
  const { actions, trans } = usePanel();
  const problem = actions.problem(props.of);
  return problem ? (
    <div role="alert">
      <Problem problem={problem}>
        <button type="button" className="jp-RemoteGPU-button" onClick={() => actions.dismiss(props.of)}>
          {trans.__('Dismiss')}
        </button>
      </Problem>
    </div>
  ) : null;
}

/** The name of a notebook; a link if the server can open it. */
export function NotebookLink(props: { title: string; path: string | null; hint?: string }): JSX.Element {
  const { execute, trans } = usePanel();
  const { title, path, hint } = props;
  return path ? (
    <button
      type="button"
      className="jp-RemoteGPU-link"
      title={hint ?? path}
      aria-label={trans.__('Open %1', title)}
      onClick={() => execute('docmanager:open', { path })}
    >
      {title}
    </button>
  ) : (
    <span className="jp-RemoteGPU-name" title={hint}>
      {title}
    </span>
  );
}

/** The heading of something that can be collapsed. */
export function Disclosure(props: {
  isOpen: boolean;
  toggle: () => void;
  controls: string;
  children: React.ReactNode;
}): JSX.Element {
  const Icon = props.isOpen ? caretDownIcon : caretRightIcon;
  return (
    <button
      type="button"
      className="jp-RemoteGPU-disclosure"
      aria-expanded={props.isOpen}
      aria-controls={props.isOpen ? props.controls : undefined}
      onClick={props.toggle}
    >
      <Icon.react tag="span" elementSize="normal" />
      {props.children}
    </button>
  );
}
