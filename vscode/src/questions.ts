/**
 * The questions of the hub, one after another: passwords, passphrases, codes and PINs, and the fingerprints of new host
 * keys. An answer goes to the hub, and is kept nowhere.
 */
import * as vscode from 'vscode';

import { inert } from './hub/border.js';
import type { Answer } from './hub/client.js';
import { textsOf, trans } from './shared/words.js';
import type { IPrompt, PromptKind } from './shared/words.js';
import { recordOf } from '../../labextension/src/untrusted.js';
import type { Facts } from '../../labextension/src/untrusted.js';

const LONGEST_ANSWER = 4096;
/** The hub accepts no fewer characters of a fingerprint. */
const FINGERPRINT_END = 4;
const KINDS: readonly string[] = ['password', 'passphrase', 'code', 'pin', 'text'];

/** Why the user is asked. */
export interface IPurpose {
  /** The sign-in to a kernelspec, or the look at a new machine. */
  readonly what: 'login' | 'probe';
  readonly name: string;
  /** The name of the notebook whose kernel waits, or ''. */
  readonly notebook: string;
  /** Lets the user answer in a terminal instead. */
  readonly openTerminal: () => void;
}

export class Questions {
  /** Asks, once no other question of this window is open. `signal` closes the question. null: in a terminal. */
  ask(question: Facts, purpose: IPurpose, signal: AbortSignal): Promise<Answer> {
    const asking = this._last.then(() => this._show(promptOf(question, purpose), purpose, signal));
    this._last = asking.catch(() => null);
    return asking;
  }

  private _show(prompt: IPrompt, { openTerminal }: IPurpose, signal: AbortSignal): Promise<Answer> {
    const box = vscode.window.createInputBox();
    const texts = textsOf(prompt, trans);
    box.title = texts.title;
    box.prompt = [texts.question, wordsOf(prompt), texts.purpose].filter(Boolean).join(' ');
    box.placeholder = prompt.kind === 'host' ? `Type the last ${FINGERPRINT_END} or more characters of the fingerprint` : texts.label;
    box.password = prompt.kind !== 'host';
    box.ignoreFocusOut = true; // the user may have to look a code up
    box.buttons = [TERMINAL];
    return new Promise(resolve => {
      const settle = (answer: Answer): void => {
        resolve(answer); // the first answer counts
        box.dispose();
      };
      const abort = (): void => settle(null);
      signal.addEventListener('abort', abort, { once: true });
      box.onDidAccept(() => {
        const fault = faultOf(prompt, box.value);
        box.validationMessage = fault;
        if (!fault) {
          settle({ value: prompt.kind === 'host' ? true : box.value });
        }
      });
      box.onDidChangeValue(() => (box.validationMessage = ''));
      box.onDidTriggerButton(() => {
        settle(null);
        openTerminal();
      });
      box.onDidHide(() => settle('cancel'));
      if (signal.aborted) {
        abort();
      } else {
        box.show();
      }
    });
  }

  private _last: Promise<unknown> = Promise.resolve();
}

const TERMINAL: vscode.QuickInputButton = { iconPath: new vscode.ThemeIcon('terminal'), tooltip: 'Sign in in a terminal instead' };

function promptOf(question: Facts, { what, name, notebook }: IPurpose): IPrompt {
  const { kind, again } = recordOf(question.secret);
  const isSecret = question.kind === 'secret';
  return {
    id: '',
    hop: inert(question.hop, 120),
    kind: isSecret ? ((KINDS.includes(kind as string) ? kind : 'text') as PromptKind) : 'host',
    prompt: inert(question.prompt, 600),
    again: again === true,
    fingerprint: inert(question.fingerprint, 120),
    keyType: inert(question.key_type, 40),
    waits: { what: notebook ? 'kernel' : what, name, notebook },
    saveable: false
  };
}

/** The words of the machine, or the fingerprint of its key. */
function wordsOf({ kind, prompt, keyType, fingerprint }: IPrompt): string {
  return kind === 'host' ? `${keyType}: ${fingerprint}.` : prompt;
}

/** Why this cannot be the answer; '' if it can. */
function faultOf({ kind, fingerprint }: IPrompt, typed: string): string {
  if (typed.length > LONGEST_ANSWER) {
    return 'This is too long.';
  }
  const isEnd = typed.length >= FINGERPRINT_END && fingerprint.endsWith(typed);
  return kind === 'host' && !isEnd ? 'The fingerprint does not end with that.' : '';
}
