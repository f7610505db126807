/**
 * Signing in to the node of a kernelspec: for a kernel that waits for that, and on the user's command.
 */
import * as vscode from 'vscode';

import type { Hub } from './hub/hub.js';
import type { Questions } from './questions.js';
import { inert } from './hub/border.js';
import type { Answer } from './hub/client.js';
import { openTerminal } from './terminal.js';
import { basename } from './shared/words.js';
import type { Facts } from '../../labextension/src/untrusted.js';

/** A kernel whose start waits until its user has signed in. */
export interface IRequest {
  readonly name: string;
  readonly node: string;
  readonly notebook: string;
}

/** terminal: the user has chosen to sign in there. */
export type Outcome = 'connected' | 'cancelled' | 'terminal' | 'failed';

export class SignIn {
  constructor(hub: Hub, questions: Questions) {
    this._hub = hub;
    this._questions = questions;
  }

  /** Signs in. `signal` ends it. */
  async run(name: string, notebook = '', signal?: AbortSignal): Promise<Outcome> {
    const spec = (await this._hub.specs()).find(one => one.name.toLowerCase() === name.toLowerCase());
    if (!spec) {
      throw new Error(`there is no kernelspec ${inert(name)}`);
    }
    const before = this._running.get(spec.name);
    const running = before ?? this._login(spec.name, spec.settings, notebook, signal);
    this._running.set(spec.name, running);
    try {
      return await running;
    } catch (error) {
      if (!before) {
        void this._tell(spec.name, error as Error);
      }
      return 'failed';
    } finally {
      this._running.delete(spec.name);
    }
  }

  /** Signs in in a terminal. */
  async runInTerminal(name: string): Promise<void> {
    openTerminal(await this._hub.program(), `Sign in: ${name}`, ['login', name]);
  }

  /**
   * Answers the request of a kernel that waits, until `gone`. Returns true when the user has cancelled.
   *
   * All windows have the request. The one that has the focus asks; another one that gets the focus waits in the hub for
   * the same connection.
   */
  async answer({ name, node, notebook }: IRequest, gone: AbortSignal): Promise<boolean> {
    const title = `The kernel “${name}”${notebook ? ` of ${basename(notebook)}` : ''} waits until you sign in to ${node}.`;
    const cancelled = await untilFocused(title, gone);
    if (cancelled || gone.aborted) {
      return cancelled;
    }
    return (await this.run(name, basename(notebook), gone)) === 'cancelled' && !gone.aborted;
  }

  private _login(name: string, settings: object, notebook: string, outer?: AbortSignal): Promise<Outcome> {
    const options = { location: vscode.ProgressLocation.Notification, title: `Signing in to ${name}`, cancellable: true };
    return Promise.resolve(
      vscode.window.withProgress(options, async (progress, token) => {
        const controller = new AbortController();
        token.onCancellationRequested(() => controller.abort());
        outer?.addEventListener('abort', () => controller.abort(), { once: true });
        return this._call(name, settings, notebook, controller.signal, message => progress.report({ message }));
      })
    );
  }

  /** It is rejected if this failed for another reason than what the user did. */
  private async _call(
    name: string,
    settings: object,
    notebook: string,
    signal: AbortSignal,
    onProgress: (text: string) => void
  ): Promise<Outcome> {
    let outcome: Outcome | null = null;
    const openTerminal = (): void => void this.runInTerminal(name);
    const purpose = { what: 'login', name, notebook: inert(notebook), openTerminal } as const;
    const ask = async (question: Facts, closed: AbortSignal): Promise<Answer> => {
      const answer = await this._questions.ask(question, purpose, closed);
      outcome = answer === 'cancel' ? 'cancelled' : answer === null && !closed.aborted ? 'terminal' : outcome;
      return answer;
    };
    try {
      await this._hub.call('login', { name, settings }, { timeout: 0, signal, onProgress, ask });
      return 'connected';
    } catch (error) {
      outcome = signal.aborted ? 'cancelled' : outcome;
      if (outcome === null) {
        throw error;
      }
      return outcome;
    }
  }

  private async _tell(name: string, error: Error): Promise<void> {
    const [again, terminal] = ['Try Again', 'Open a Terminal'];
    const chosen = await vscode.window.showErrorMessage(`Signing in to ${name} failed. ${error.message}`, again, terminal);
    if (chosen === again) {
      await this.run(name);
    } else if (chosen === terminal) {
      await this.runInTerminal(name);
    }
  }

  private readonly _hub: Hub;
  private readonly _questions: Questions;
  private readonly _running = new Map<string, Promise<Outcome>>();
}

/** Waits until this window has the focus, and says so meanwhile. Returns whether the user has cancelled. */
function untilFocused(title: string, gone: AbortSignal): Promise<boolean> {
  if (vscode.window.state.focused || gone.aborted) {
    return Promise.resolve(false);
  }
  const options = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
  return Promise.resolve(
    vscode.window.withProgress(
      options,
      (_, token) =>
        new Promise<boolean>(resolve => {
          const listener = vscode.window.onDidChangeWindowState(state => state.focused && settle(false));
          const settle = (cancelled: boolean): void => {
            listener.dispose();
            resolve(cancelled);
          };
          token.onCancellationRequested(() => settle(true));
          gone.addEventListener('abort', () => settle(false), { once: true });
        })
    )
  );
}
