/**
 * The form “Add a remote GPU”: a machine, the search on it, what was found, and the kernelspecs that are there.
 */
import { Clipboard } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useEffect, useReducer, useRef } from 'react';

import { knownHost } from './fields';
import { Found } from './foundView';
import { Button, CheckField, FormContext, Hops, LinesField, ProblemBox, TextField, useForm } from './parts';
import type { IFormContext } from './parts';
import { hopViews } from './progress';
import { wayOf } from './types';
import type { IFields, IHost, ISpec } from './types';

const MORE: readonly (keyof IFields)[] = ['config', 'setup', 'python', 'cwd'];

export interface IFormProps extends IFormContext {
  /** Opens a new notebook with this kernelspec; undefined where that is not possible. */
  readonly openNotebook?: (name: string) => void;
  /** Asks the user, and removes the kernelspec. */
  readonly remove: (name: string) => void;
}

export function AddForm({ session, trans, openTerminal, openNotebook, remove }: IFormProps): JSX.Element {
  const [, update] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    session.changed.connect(update);
    update(); // it may have changed before
    return () => void session.changed.disconnect(update);
  }, [session]);
  const { problem } = session;
  return (
    <FormContext.Provider value={{ session, trans, openTerminal }}>
      <h1>{trans.__('Add a remote GPU')}</h1>
      <p>{trans.__('A machine that you reach by SSH becomes a kernel that every notebook can use.')}</p>
      <Machine />
      {problem && !problem.field && <ProblemBox problem={problem} />}
      {session.probe && <Progress />}
      {session.found && <Found />}
      {session.written && <Added openNotebook={openNotebook} />}
      {session.specs.length > 0 && <Specs specs={session.specs} remove={remove} />}
    </FormContext.Provider>
  );
}

/** Which machine, and how it is reached. */
function Machine(): JSX.Element {
  const { session, trans } = useForm();
  const { fields, busy, hosts, problem } = session;
  const host = knownHost(hosts ?? [], fields.destination);
  const search = (event: React.FormEvent): void => {
    event.preventDefault();
    if (!busy) {
      void session.search();
    }
  };
  return (
    <form aria-label={trans.__('Machine')} onSubmit={search}>
      <TextField
        name="destination"
        label={fields.slurm ? trans.__('Login node') : trans.__('Machine')}
        help={host ? described(host, trans) : destinationHelp(hosts, trans)}
        placeholder="alice@gpu2"
        isRequired
        offers={(hosts ?? []).map(one => ({ value: one.name, label: described(one, trans) }))}
      />
      <TextField
        name="jumps"
        label={trans.__('Through (jump hosts)')}
        help={trans.__('Separated by commas, the first one first. Empty: as your ssh configuration says.')}
        placeholder={host?.jumps.join(', ') || 'alice@login:7092'}
      />
      <TextField
        name="identity"
        label={trans.__('Private key file')}
        help={trans.__('On the computer of the Jupyter server. Empty: the keys that ssh would use.')}
        placeholder="~/.ssh/id_ed25519"
      />
      <CheckField name="slurm" label={trans.__('This is the login node of a cluster with Slurm: kernels run in jobs')} />
      <details open={MORE.some(name => problem?.field === name) || undefined}>
        <summary>{trans.__('More options')}</summary>
        <LinesField
          name="setup"
          label={trans.__('Set-up lines')}
          help={trans.__('Shell lines that run on the machine before the kernel starts, one per line.')}
          placeholder="module load python"
        />
        <TextField
          name="python"
          label={trans.__('Python')}
          help={trans.__('Its path on the machine. Empty: the best one is searched for.')}
        />
        <TextField
          name="cwd"
          label={trans.__('Working directory')}
          help={trans.__('On the machine. Empty: your home folder.')}
        />
        <TextField
          name="config"
          label={trans.__('SSH configuration file')}
          help={trans.__('Instead of ~/.ssh/config, on the computer of the Jupyter server.')}
        />
      </details>
      <div className="jp-RemoteGPU-addButtons">
        <Button
          label={busy === 'searching' ? trans.__('Searching…') : trans.__('Connect and look')}
          isMain={!session.found}
          isSubmit
          isDisabled={busy !== null}
        />
        {busy === 'searching' && <Button label={trans.__('Cancel')} onClick={() => void session.cancel()} />}
      </div>
    </form>
  );
}

function described(host: IHost, trans: TranslationBundle): string {
  const address = host.port === null || host.port === 22 ? host.user : trans.__('%1, port %2', host.user, host.port);
  return host.jumps.length ? trans.__('%1, through %2', address, host.jumps.join(' → ')) : address;
}

function destinationHelp(hosts: readonly IHost[] | null, trans: TranslationBundle): string {
  const forms = trans.__('user@host, user@host:port, a host of your ssh configuration, or a pasted “ssh …” command.');
  return hosts?.length ? `${forms} ${trans.__('%1 hosts to choose from.', hosts.length)}` : forms;
}

function Progress(): JSX.Element {
  const { session, trans } = useForm();
  const probe = session.probe!;
  const states = {
    running: trans.__('Connecting…'),
    done: trans.__('The machine is ready for kernels.'),
    failed: trans.__('The machine cannot be used yet.')
  };
  return (
    <section ref={useShown()} aria-label={trans.__('Progress')}>
      <p role="status" className="jp-RemoteGPU-addStatus">
        {states[probe.state]}
      </p>
      <Hops hops={hopViews(probe, trans)} label={trans.__('Way to the machine')} />
      {probe.command && <CreateEnvironment command={probe.command} />}
    </section>
  );
}

/** Where no Python can run kernels: a command makes an environment, and asks before it does. */
function CreateEnvironment({ command }: { command: string }): JSX.Element {
  const { trans, openTerminal } = useForm();
  return (
    <div className="jp-RemoteGPU-addFact">
      <p>
        {trans.__(
          'This command makes an environment with ipykernel on the machine, which needs no internet access for that, and adds the kernel. Run it in a terminal: it says first what it will do, and asks.'
        )}
      </p>
      <code>{command}</code>
      <div className="jp-RemoteGPU-addButtons">
        <Button label={trans.__('Copy command')} isMain onClick={() => Clipboard.copyToSystem(command)} />
        {openTerminal && <Button label={trans.__('Open terminal')} onClick={openTerminal} />}
      </div>
    </div>
  );
}

/** Scrolls what appears below the visible part into view. */
function useShown(): React.RefObject<HTMLElement> {
  const shown = useRef<HTMLElement>(null);
  useEffect(() => {
    void shown.current?.scrollIntoView({ block: 'nearest' });
  }, []);
  return shown;
}

function Added({ openNotebook }: Pick<IFormProps, 'openNotebook'>): JSX.Element {
  const { session, trans } = useForm();
  const { name, display_name, shadowed_by } = session.written!;
  const shadow = shadowed_by && trans.__('This server uses another kernelspec of this name, though: %1', shadowed_by);
  return (
    <section ref={useShown()} className="jp-RemoteGPU-addDone" aria-label={trans.__('Result')}>
      <div role="status">
        <p>{trans.__('Added. “%1” is in the launcher, and in the kernel menu of every notebook.', display_name)}</p>
        {shadow && <p>{shadow}</p>}
      </div>
      <div className="jp-RemoteGPU-addButtons">
        {openNotebook && <Button label={trans.__('New notebook on it')} isMain onClick={() => openNotebook(name)} />}
        <Button label={trans.__('Add another one')} onClick={() => session.reset()} />
      </div>
    </section>
  );
}

function Specs(props: { specs: readonly ISpec[]; remove: (name: string) => void }): JSX.Element {
  const { trans } = useForm();
  return (
    <section aria-labelledby="jp-RemoteGPU-add-specs">
      <h2 id="jp-RemoteGPU-add-specs">{trans.__('Remote GPUs that you have')}</h2>
      <ul className="jp-RemoteGPU-addSpecs">
        {props.specs.map(spec => (
          <li key={spec.name}>
            <span className="jp-RemoteGPU-addHop">{spec.display_name}</span>
            <span className="jp-RemoteGPU-addStep">{wayOf(spec)}</span>
            <Button
              label={trans.__('Remove…')}
              title={trans.__('Remove %1', spec.display_name)}
              onClick={() => props.remove(spec.name)}
            />
          </li>
        ))}
      </ul>
    </section>
  );
}
