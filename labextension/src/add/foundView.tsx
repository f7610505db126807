/**
 * The second part of the form: what was found on the machine, to choose from.
 */
import React from 'react';

import { choices, gpuRow, gpuTypes, notes, partitionText, unfit, versions } from './found';
import { Button, CheckField, Hops, SelectField, TextField, useForm } from './parts';
import { hopViews } from './progress';
import type { IFound, IGpu, ISlurm } from './types';

export function Found(): JSX.Element {
  const { session, trans } = useForm();
  const found = session.found!;
  const add = (event: React.FormEvent): void => {
    event.preventDefault();
    if (!session.busy) {
      void session.add();
    }
  };
  return (
    <form aria-label={trans.__('Kernel')} onSubmit={add}>
      <Pythons found={found} />
      {found.gpus.length > 0 && <Gpus gpus={found.gpus} />}
      {notes(found, session.fields, trans).map(note => (
        <p key={note} className="jp-RemoteGPU-addNote">
          {note}
        </p>
      ))}
      {found.slurm && <Slurm slurm={found.slurm} />}
      <TextField
        name="gpus"
        label={trans.__('GPUs of each kernel')}
        help={trans.__('0: none. A kernel takes them with its first cell, and only if nobody uses them.')}
        inputMode="numeric"
      />
      <TextField name="name" label={trans.__('Name')} help={trans.__('It is shown as “Remote GPU (name)”.')} />
      {session.isTaken && (
        <CheckField name="replace" label={trans.__('Replace “%1”, which exists', session.fields.name.trim())} />
      )}
      <div className="jp-RemoteGPU-addButtons">
        <Button
          label={session.busy === 'adding' ? trans.__('Adding…') : trans.__('Add')}
          isMain
          isSubmit
          isDisabled={session.busy !== null}
        />
        {session.busy === 'adding' && <Button label={trans.__('Cancel')} onClick={() => void session.cancel()} />}
      </div>
      {session.check && session.check.state !== 'done' && (
        <Hops hops={hopViews(session.check, trans)} label={trans.__('Check of what was changed')} />
      )}
    </form>
  );
}

function Pythons({ found }: { found: IFound }): JSX.Element {
  const { session, trans } = useForm();
  const given = session.fields.python;
  const chosen = choices(found).some(python => python.path === given) ? given : found.python.path;
  const others = unfit(found);
  return (
    <fieldset>
      <legend>{trans.__('Python')}</legend>
      {choices(found).map((python, index) => (
        <label key={python.path} className="jp-RemoteGPU-addCheck">
          <input
            type="radio"
            name="jp-RemoteGPU-add-python"
            checked={python.path === chosen}
            onChange={() => session.set({ python: python.path })}
          />
          <span>
            <code>{python.path}</code>
            <span className="jp-RemoteGPU-addStep">{versions(python, trans)}</span>
            {index === 0 && found.others.length > 0 && (
              <span className="jp-RemoteGPU-addBest">{trans.__('recommended')}</span>
            )}
          </span>
        </label>
      ))}
      {others.length > 0 && (
        <details>
          <summary>{trans.__('Pythons that cannot be used: %1', others.length)}</summary>
          <ul>
            {others.map(python => (
              <li key={python.path}>
                <code>{python.path}</code> {python.why_not}
              </li>
            ))}
          </ul>
        </details>
      )}
    </fieldset>
  );
}

function Gpus({ gpus }: { gpus: readonly IGpu[] }): JSX.Element {
  const { trans } = useForm();
  return (
    <div className="jp-RemoteGPU-addTable" tabIndex={0} role="region" aria-label={trans.__('GPUs')}>
      <table>
        <thead>
          <tr>
            {[trans.__('GPU'), trans.__('Memory'), trans.__('Use'), trans.__('State')].map(head => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {gpus.map((gpu, index) => (
            <tr key={index} data-free={gpu.free === true}>
              {gpuRow(gpu, trans).map((cell, column) => (
                <td key={column}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Slurm({ slurm }: { slurm: ISlurm }): JSX.Element {
  const { session, trans } = useForm();
  const { partition } = session.fields;
  const types = gpuTypes(slurm.partitions, partition);
  const type = session.fields.gpuType;
  return (
    <>
      <p className="jp-RemoteGPU-addFact">{trans.__('Slurm says of such a job: %1', slurm.test)}</p>
      <SelectField
        name="partition"
        label={trans.__('Partition')}
        options={slurm.partitions.map(one => ({ value: one.name, label: partitionText(one, trans) }))}
      />
      <SelectField
        name="gpuType"
        label={trans.__('Type of GPU')}
        options={[
          { value: '', label: trans.__('any') },
          ...[...new Set([...types, ...(type ? [type] : [])])].map(one => ({ value: one, label: one }))
        ]}
      />
      <TextField
        name="time"
        label={trans.__('Time limit')}
        help={trans.__('As Slurm writes it: 4:00:00, or 1-12:00:00 for a day and a half. The job ends then.')}
      />
      <TextField name="cpus" label={trans.__('CPUs')} help={trans.__("Empty: Slurm's default.")} inputMode="numeric" />
      <TextField
        name="mem"
        label={trans.__('Memory')}
        help={trans.__("Of each machine: 32G. Empty: Slurm's default, which may be small.")}
      />
      <TextField name="account" label={trans.__('Account')} help={trans.__('Empty: your default one.')} />
      <TextField name="qos" label={trans.__('Quality of service (QOS)')} help={trans.__('Empty: the default one.')} />
    </>
  );
}
