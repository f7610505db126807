/**
 * Notices about the kernels of open notebooks: the node is out of reach, the first cell waits. Each closes by itself.
 */
import * as vscode from 'vscode';

import type { IKernel } from './hub/border.js';
import type { Hub } from './hub/hub.js';
import { nameOf } from './kernelCommands.js';
import type { Model } from './model.js';
import { notebookOf } from './notebooks.js';
import { clock, isHelpedByLogin, noticeOf, trans, waitsForJob } from './shared/words.js';
import type { SignIn } from './signIn.js';

/** Seconds for which something must last, as most outages and waits are shorter. */
const DELAY = 3;

interface INotice {
  readonly kind: 'away' | 'waiting' | 'signIn';
  /** The most important, as VS Code shows one line until the user wants more. */
  readonly title: string;
  readonly text: string;
}

interface IShown {
  kind: INotice['kind'];
  /** When it began, in milliseconds. */
  readonly since: number;
  report: ((text: string) => void) | null;
  close: () => void;
}

export class Notices implements vscode.Disposable {
  /** `clock`: in milliseconds. */
  constructor(hub: Hub, model: Model, signIn: SignIn, clock: () => number = Date.now) {
    this._clock = clock;
    this._hub = hub;
    this._model = model;
    this._signIn = signIn;
    this._listener = model.changed(() => this._update());
  }

  dispose(): void {
    this._listener.dispose();
    this._shown.forEach(one => one.close());
  }

  private _update(): void {
    const now = this._clock();
    const current = new Map<string, readonly [IKernel, INotice]>();
    for (const kernel of this._model.kernels) {
      const notice = notebookOf(kernel) ? noticeFor(kernel, now / 1000) : null;
      if (notice) {
        current.set(kernel.id, [kernel, notice]);
      }
    }
    for (const [id, shown] of this._shown) {
      if (current.get(id)?.[1].kind !== shown.kind) {
        shown.close();
        this._shown.delete(id);
      }
    }
    for (const [id, [kernel, notice]] of current) {
      const shown = this._shown.get(id) ?? { kind: notice.kind, since: now, report: null, close: () => undefined };
      this._shown.set(id, shown);
      if (now - shown.since >= DELAY * 1000) {
        this._show(kernel, notice, shown);
      }
    }
  }

  private _show(kernel: IKernel, notice: INotice, shown: IShown): void {
    if (shown.report) {
      return shown.report(notice.text);
    }
    shown.report = () => undefined;
    if (notice.kind === 'signIn') {
      void this._offer(kernel, `${notice.title}. ${notice.text}`);
      return;
    }
    // A wait can be cancelled; an outage ends by itself.
    const options = { location: vscode.ProgressLocation.Notification, title: notice.title, cancellable: notice.kind === 'waiting' };
    void vscode.window.withProgress(options, (progress, token) => {
      token.onCancellationRequested(() => void this._interrupt(kernel));
      shown.report = message => progress.report({ message });
      shown.report(notice.text);
      return new Promise<void>(resolve => (shown.close = resolve));
    });
  }

  private async _offer(kernel: IKernel, text: string): Promise<void> {
    const [signIn, terminal] = ['Sign In', 'Open a Terminal'];
    const chosen = await vscode.window.showWarningMessage(text, signIn, terminal);
    if (chosen === signIn) {
      await this._signIn.run(kernel.name);
    } else if (chosen === terminal) {
      await this._signIn.runInTerminal(kernel.name);
    }
  }

  private async _interrupt(kernel: IKernel): Promise<void> {
    try {
      await this._hub.call('interrupt', { kernel: kernel.id, specs: await this._hub.specsForHub() });
    } catch (error) {
      void vscode.window.showErrorMessage((error as Error).message);
    }
  }

  private readonly _clock: () => number;
  private readonly _hub: Hub;
  private readonly _model: Model;
  private readonly _signIn: SignIn;
  private readonly _listener: vscode.Disposable;
  private readonly _shown = new Map<string, IShown>();
}

/** What is worth a notice; null for nothing. */
export function noticeFor(kernel: IKernel, now: number): INotice | null {
  const outage = noticeOf(kernel, null, now, trans, true);
  const [name, { node, away_since }] = [nameOf(kernel), kernel];
  if (outage) {
    const since = away_since ? trans.__('since %1', clock(away_since, true)) : '';
    const kind = isHelpedByLogin(kernel.error) ? 'signIn' : 'away';
    return { kind, title: `${trans.__('%1 is out of reach', node)} ${since}`.trim(), text: trans.__('%1 keeps running. %2', name, outage.detail).trim() };
  }
  if (kernel.state !== 'waiting') {
    return null;
  }
  const title = waitsForJob(kernel) ? trans.__('%1 waits for its job', name) : trans.__('%1 waits for a GPU', name);
  const place = kernel.place ? trans.__('place %1 in the queue of %2.', kernel.place, node) : '';
  return { kind: 'waiting', title, text: [place, kernel.waiting_text].filter(Boolean).join(' ') };
}
