/**
 * The parts of the form: fields with label, help and error; problems; progress.
 */
import { LabIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { createContext, useContext } from 'react';

import type { IProblem } from '../tokens';
import type { IHopView } from './progress';
import { inForm } from './remedy';
import type { AddSession } from './session';
import type { IFields } from './types';

export interface IFormContext {
  readonly session: AddSession;
  readonly trans: TranslationBundle;
  /** Opens a terminal of the Jupyter server; undefined where there are none. */
  readonly openTerminal?: () => void;
}

export const FormContext = createContext<IFormContext | null>(null);

export function useForm(): IFormContext {
  const context = useContext(FormContext);
  if (!context) {
    throw new Error('FormContext is not provided');
  }
  return context;
}

type TextName = { [Key in keyof IFields]: IFields[Key] extends string ? Key : never }[keyof IFields];

export interface IFieldProps {
  readonly name: TextName;
  readonly label: string;
  readonly help?: string;
}

const idOf = (name: string): string => `jp-RemoteGPU-add-${name}`;

/** Label, control, help and error of one field; the control gets the attributes that tie them together. */
function Field(props: IFieldProps & { control: (attributes: IAttributes) => JSX.Element }): JSX.Element {
  const { session } = useForm();
  const { name, label, help, control } = props;
  const problem = session.problem?.field === name ? session.problem : null;
  const [helpId, errorId] = [`${idOf(name)}-help`, `${idOf(name)}-error`];
  const described = [help && helpId, problem && errorId].filter(Boolean).join(' ');
  return (
    <div className="jp-RemoteGPU-addField">
      <label htmlFor={idOf(name)}>{label}</label>
      {control({
        id: idOf(name),
        className: 'jp-mod-styled',
        'aria-describedby': described || undefined,
        'aria-invalid': problem ? true : undefined
      })}
      {help && (
        <p id={helpId} className="jp-RemoteGPU-addHelp">
          {help}
        </p>
      )}
      {problem && <ProblemBox id={errorId} problem={problem} />}
    </div>
  );
}

interface IAttributes {
  readonly id: string;
  readonly className: string;
  readonly 'aria-describedby'?: string;
  readonly 'aria-invalid'?: boolean;
}

interface ITextProps extends IFieldProps {
  readonly placeholder?: string;
  readonly isRequired?: boolean;
  /** Texts to choose from, with a description of each. */
  readonly offers?: readonly { value: string; label: string }[];
  readonly inputMode?: 'numeric';
}

export function TextField(props: ITextProps): JSX.Element {
  const { session } = useForm();
  const { name, placeholder, isRequired, offers, inputMode } = props;
  const list = offers?.length ? `${idOf(name)}-list` : undefined;
  return (
    <Field
      {...props}
      control={attributes => (
        <>
          <input
            {...attributes}
            type="text"
            autoComplete="off"
            spellCheck={false}
            inputMode={inputMode}
            placeholder={placeholder}
            required={isRequired}
            list={list}
            value={session.fields[name]}
            onChange={event => session.set({ [name]: event.target.value })}
          />
          {list && (
            <datalist id={list}>
              {offers!.map(offer => (
                <option key={offer.value} value={offer.value}>
                  {offer.label}
                </option>
              ))}
            </datalist>
          )}
        </>
      )}
    />
  );
}

export function LinesField(props: IFieldProps & { placeholder?: string }): JSX.Element {
  const { session } = useForm();
  return (
    <Field
      {...props}
      control={attributes => (
        <textarea
          {...attributes}
          rows={2}
          spellCheck={false}
          placeholder={props.placeholder}
          value={session.fields[props.name]}
          onChange={event => session.set({ [props.name]: event.target.value })}
        />
      )}
    />
  );
}

export function SelectField(
  props: IFieldProps & { options: readonly { value: string; label: string }[] }
): JSX.Element {
  const { session } = useForm();
  const { name, options } = props;
  return (
    <Field
      {...props}
      control={attributes => (
        <select
          {...attributes}
          value={session.fields[name]}
          onChange={event => session.set({ [name]: event.target.value })}
        >
          {options.map(option => (
            <option key={option.value} value={option.value}>
              {option.label}
            </option>
          ))}
        </select>
      )}
    />
  );
}

export function CheckField(props: { name: 'slurm' | 'replace'; label: string }): JSX.Element {
  const { session } = useForm();
  return (
    <label className="jp-RemoteGPU-addCheck">
      <input
        type="checkbox"
        checked={session.fields[props.name]}
        onChange={event => session.set({ [props.name]: event.target.checked })}
      />
      {props.label}
    </label>
  );
}

/** An error: the hop, the cause, the remedy. All are shown as text. */
export function ProblemBox(props: { problem: IProblem; id?: string }): JSX.Element {
  const { trans } = useForm();
  const { hop, cause, remedy } = props.problem;
  return (
    <div id={props.id} className="jp-RemoteGPU-addProblem" role="alert">
      <p>
        {hop && <strong>{hop}: </strong>}
        {cause}
      </p>
      {remedy && <p>{inForm(remedy, trans)}</p>}
    </div>
  );
}

/** All hops, from the first one to the machine. */
export function Hops(props: { hops: readonly IHopView[]; label: string }): JSX.Element {
  return (
    <ol className="jp-RemoteGPU-addHops" aria-label={props.label}>
      {props.hops.map((hop, index) => (
        <li key={index} data-state={hop.state}>
          <HopMark state={hop.state} />
          <span className="jp-RemoteGPU-addHop">{hop.name}</span>
          <span className="jp-RemoteGPU-addStep">{hop.text}</span>
          {hop.problem && <ProblemBox problem={{ ...hop.problem, hop: '' }} />}
        </li>
      ))}
    </ol>
  );
}

const MARKS: Readonly<Record<IHopView['state'], string>> = { waiting: '○', active: '◌', done: '✓', failed: '✗' };

function HopMark({ state }: { state: IHopView['state'] }): JSX.Element {
  return (
    <span className="jp-RemoteGPU-addMark" aria-hidden>
      {MARKS[state]}
    </span>
  );
}

export function Button(props: {
  label: string;
  icon?: LabIcon;
  isMain?: boolean;
  isDisabled?: boolean;
  isSubmit?: boolean;
  title?: string;
  onClick?: () => void;
}): JSX.Element {
  // Not “disabled”: the focus would be lost when a button that has it is disabled.
  return (
    <button
      type={props.isSubmit ? 'submit' : 'button'}
      className={`jp-mod-styled ${props.isMain ? 'jp-mod-accept' : 'jp-mod-reject'}`}
      aria-disabled={props.isDisabled || undefined}
      aria-label={props.title}
      title={props.title}
      onClick={props.isDisabled ? event => event.preventDefault() : props.onClick}
    >
      {props.label}
    </button>
  );
}
