/**
 * A question to the user, as the server sends it, and its texts. Pure: no page, no network.
 *
 * What a machine says is one line of bounded length, and is attributed to that machine.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

// The import has a suffix, for Node's test runner.
import { line, listOf, recordOf } from '../untrusted.js';

export type PromptKind = 'password' | 'passphrase' | 'code' | 'pin' | 'text' | 'host';

const KINDS: readonly string[] = ['password', 'passphrase', 'code', 'pin', 'text', 'host'];
const LONGEST_NAME = 120;
const LONGEST_WORDS = 600;
/** The server accepts no fewer characters of a fingerprint. */
const FINGERPRINT_END = 4;

export interface IPrompt {
  readonly id: string;
  /** The machine that asks. */
  readonly hop: string;
  readonly kind: PromptKind;
  /** The words of the machine, which the hub attributes to it, or of the hub. */
  readonly prompt: string;
  /** Whether the answer before was not accepted. */
  readonly again: boolean;
  /** Of the new host key; '' for other kinds. */
  readonly fingerprint: string;
  readonly keyType: string;
  /** What waits for the answer. */
  readonly waits: { readonly what: string; readonly name: string; readonly notebook: string };
  /** Whether the answer can be stored in the system keyring. */
  readonly saveable: boolean;
}

export interface ITexts {
  readonly title: string;
  /** What is asked for. */
  readonly question: string;
  /** What waits for the answer. */
  readonly purpose: string;
  /** The label of the field. */
  readonly label: string;
  readonly accept: string;
  /** Where an answer is stored. */
  readonly keyring: string;
}

/** The questions in the server's response; what is none is left out. */
export function parsePrompts(response: unknown): IPrompt[] {
  return listOf(response).flatMap(each => parsePrompt(each) ?? []);
}

function parsePrompt(value: unknown): IPrompt | null {
  const data = recordOf(value);
  const waits = recordOf(data.for);
  if (typeof data.id !== 'string' || !/^[0-9a-f]{32}$/.test(data.id) || !KINDS.includes(data.kind as string)) {
    return null;
  }
  return {
    id: data.id,
    hop: line(data.hop, LONGEST_NAME),
    kind: data.kind as PromptKind,
    prompt: line(data.prompt, LONGEST_WORDS),
    again: data.again === true,
    fingerprint: line(data.fingerprint, LONGEST_NAME),
    keyType: line(data.key_type, LONGEST_NAME),
    waits: {
      what: line(waits.what, LONGEST_NAME),
      name: line(waits.name, LONGEST_NAME),
      notebook: line(waits.notebook, LONGEST_NAME)
    },
    saveable: data.saveable === true
  };
}

export function textsOf(prompt: IPrompt, trans: TranslationBundle): ITexts {
  const isHost = prompt.kind === 'host';
  return {
    title: isHost ? trans.__('New host key of %1', prompt.hop) : trans.__('Sign in to %1', prompt.hop),
    question: questionOf(prompt, trans),
    purpose: purposeOf(prompt.waits, trans),
    label: labelOf(prompt.kind, trans),
    accept: isHost ? trans.__('Accept Key') : trans.__('Sign In'),
    keyring: trans.__(
      'The keyring of the computer on which Jupyter runs. “jupyter gpu-kernel login %1 --forget” deletes it.',
      prompt.waits.name
    )
  };
}

function questionOf({ kind, hop, again }: IPrompt, trans: TranslationBundle): string {
  switch (kind) {
    case 'password':
      return again ? trans.__('%1 did not accept the password.', hop) : trans.__('%1 asks for your password.', hop);
    case 'passphrase':
      return again ? trans.__('The passphrase is wrong.') : trans.__('Your key for %1 is locked.', hop);
    case 'code':
      return again ? trans.__('%1 did not accept the code.', hop) : trans.__('%1 asks for a code.', hop);
    case 'pin':
      return again ? trans.__('The PIN is wrong.') : trans.__('Your key for %1 needs its PIN.', hop);
    case 'host':
      return trans.__(
        'This computer has never connected to %1. Compare the fingerprint with the one that the machine’s administrators publish.',
        hop
      );
    default:
      return again ? trans.__('%1 did not accept the answer.', hop) : trans.__('%1 asks a question.', hop);
  }
}

function purposeOf({ what, name, notebook }: IPrompt['waits'], trans: TranslationBundle): string {
  if (what === 'kernel' && notebook) {
    return trans.__('The kernel “%1” of %2 waits for it.', name, notebook);
  }
  if (what === 'kernel') {
    return trans.__('The kernel “%1” waits for it.', name);
  }
  return what === 'probe' ? trans.__('The connection to “%1” waits for it.', name) : trans.__('You sign in to “%1”.', name);
}

function labelOf(kind: PromptKind, trans: TranslationBundle): string {
  const labels: Record<PromptKind, string> = {
    password: trans.__('Password'),
    passphrase: trans.__('Passphrase'),
    code: trans.__('Code'),
    pin: trans.__('PIN'),
    text: trans.__('Answer'),
    host: trans.__('If they are equal, type the last %1 or more characters of the fingerprint:', FINGERPRINT_END)
  };
  return labels[kind];
}
