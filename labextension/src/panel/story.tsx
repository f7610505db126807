/**
 * The log of one kernel, as a document in the main area.
 */
import { MainAreaWidget, ReactWidget } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { listIcon } from '@jupyterlab/ui-components';
import React, { useEffect, useState } from 'react';

import { problemOf } from '../request';
import type { IProblem } from '../tokens';
import { Problem } from './parts';
import type { IStoryRow } from './requests';

interface IProps {
  readonly trans: TranslationBundle;
  readonly title: string;
  readonly fetch: () => Promise<readonly IStoryRow[]>;
}

export function storyWidget(props: IProps): MainAreaWidget<ReactWidget> {
  const content = ReactWidget.create(<Story {...props} />);
  content.addClass('jp-RemoteGPU-story');
  const widget = new MainAreaWidget({ content });
  widget.title.label = props.trans.__('Log of %1', props.title);
  widget.title.icon = listIcon;
  return widget;
}

function Story({ trans, title, fetch }: IProps): JSX.Element {
  const [rows, setRows] = useState<readonly IStoryRow[] | null>(null);
  const [problem, setProblem] = useState<IProblem | null>(null);
  const load = (): void => {
    fetch().then(
      found => {
        setRows(found);
        setProblem(null);
      },
      async error => setProblem(await problemOf(error))
    );
  };
  useEffect(load, []);
  return (
    <>
      <div className="jp-RemoteGPU-header">
        <h2>{trans.__('Log of %1', title)}</h2>
        <button type="button" className="jp-RemoteGPU-button" onClick={load}>
          {trans.__('Refresh')}
        </button>
      </div>
      {problem && <Problem problem={problem} />}
      {!rows && !problem && <p className="jp-RemoteGPU-note">{trans.__('Asking the node…')}</p>}
      {rows && <Rows rows={rows} trans={trans} />}
    </>
  );
}

function Rows({ rows, trans }: { rows: readonly IStoryRow[]; trans: TranslationBundle }): JSX.Element {
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">{trans.__('Time')}</th>
          <th scope="col">{trans.__('Event')}</th>
          <th scope="col">{trans.__('What happened')}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, index) => (
          <tr key={index}>
            <td>{row.time ? new Date(row.time * 1000).toLocaleString() : ''}</td>
            <td>{row.event ?? ''}</td>
            <td>
              {row.text}
              {row.remedy && <p className="jp-RemoteGPU-remedy">{row.remedy}</p>}
              {row.error && <Problem problem={row.error} />}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
