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

/** terminal: the user has chosen to sign in there. left: the caller's signal has ended its wait. */
export type Outcome = 'connected' | 'cancelled' | 'terminal' | 'failed' | 'left';

export class SignIn {
  constructor(hub: Hub, questions: Questions) {
    this._hub = hub;
    this._questions = questions;
  }

  /** Signs in. `signal` ends the wait, and the sign-in as well if nobody else waits for it. */
  async run(name: string, notebook = '', signal?: AbortSignal): Promise<Outcome> {
    const spec = (await this._hub.specs()).find(one => one.name.toLowerCase() === name.toLowerCase());
    if (!spec) {
      throw new Error(`there is no kernelspec ${inert(name)}`);
    }
    if (signal?.aborted) {
      return 'left';
    }
    const running = this._running.get(spec.name) ?? this._begin(spec.name, spec.settings, notebook);
    return running.wait(signal);
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
    return (await this.run(name, basename(notebook), gone)) === 'cancelled';
  }

  private _begin(name: string, settings: object, notebook: string): SharedLogin {
    const login: SharedLogin = new SharedLogin(
      ended => this._login(name, settings, notebook, ended).catch(error => this._failed(name, error as Error)),
      () => this._running.get(name) === login && this._running.delete(name)
    );
    this._running.set(name, login);
    return login;
  }

  private _failed(name: string, error: Error): Outcome {
    void this._tell(name, error);
    return 'failed';
  }

  private _login(name: string, settings: object, notebook: string, ended: AbortSignal): Promise<Outcome> {
    const options = { location: vscode.ProgressLocation.Notification, title: `Signing in to ${name}`, cancellable: true };
    return Promise.resolve(
      vscode.window.withProgress(options, async (progress, token) => {
        const controller = new AbortController();
        token.onCancellationRequested(() => controller.abort());
        const signal = AbortSignal.any([controller.signal, ended]); // which may be aborted before this runs
        return this._call(name, settings, notebook, signal, message => progress.report({ message }));
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
  private readonly _running = new Map<string, SharedLogin>();
}

/** A sign-in for which several callers wait. It goes on until it has ended, or all of them have left. */
class SharedLogin {
  /** `onEnd` is called, perhaps twice, when the sign-in is not one that others can wait for any more. */
  constructor(run: (ended: AbortSignal) => Promise<Outcome>, onEnd: () => unknown) {
    this._onEnd = onEnd;
    this._outcome = run(this._controller.signal).finally(onEnd);
  }

  /** Waits for the outcome, or until `signal`. */
  wait(signal?: AbortSignal): Promise<Outcome> {
    this._waiting += 1;
    return new Promise((resolve, reject) => {
      this._outcome.then(resolve, reject);
      signal?.addEventListener('abort', () => resolve(this._leave()), { once: true });
    });
  }

  private _leave(): Outcome {
    this._waiting -= 1;
    if (this._waiting === 0) {
      this._onEnd();
      this._controller.abort();
    }
    return 'left';
  }

  private readonly _onEnd: () => unknown;
  private readonly _controller = new AbortController();
  private readonly _outcome: Promise<Outcome>;
  private _waiting = 0;
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
