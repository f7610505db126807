/**
 * The commands about one kernel: of a row of the view, of the active notebook, or of a list.
 *
 * Others may run a command with any arguments: what ends or disturbs something asks first.
 */
import * as vscode from 'vscode';

import type { Documents } from './documents.js';
import { idOf, inert, rowsOf } from './hub/border.js';
import type { IKernel } from './hub/border.js';
import type { Hub } from './hub/hub.js';
import type { Model } from './model.js';
import { kernelOf } from './notebooks.js';
import { clock, kernelView, titleOf, trans } from './shared/words.js';
import { openTerminal } from './terminal.js';
import { numberOf, problem } from './hub/border.js';
import { isRecord, recordOf } from '../../labextension/src/untrusted.js';

const HIGHEST_PRIORITY = 99;

export class KernelCommands {
  constructor(hub: Hub, model: Model, documents: Documents) {
    this._hub = hub;
    this._model = model;
    this._documents = documents;
  }

  /** What each command does. */
  get all(): Readonly<Record<string, (argument: unknown) => Promise<void>>> {
    return {
      'remoteGpu.interrupt': argument => this._with(argument, kernel => this._interrupt(kernel)),
      'remoteGpu.stop': argument => this._with(argument, kernel => this._stop(kernel)),
      'remoteGpu.log': argument => this._with(argument, kernel => this._log(kernel)),
      'remoteGpu.attach': argument => this._with(argument, kernel => this._attach(kernel)),
      'remoteGpu.priority': argument => this._with(argument, kernel => this._setPriority(kernel)),
      'remoteGpu.openNotebook': argument => this._with(argument, kernel => this._open(kernel))
    };
  }

  /** Interrupts what the kernel runs or waits for, after the user has agreed. */
  private async _interrupt(kernel: IKernel): Promise<void> {
    const text = trans.__('The cell that runs in “%1” on %2 ends.', nameOf(kernel), kernel.node);
    if (await isConfirmed(trans.__('Interrupt this kernel?'), text, trans.__('Interrupt'))) {
      await this._call(kernel, 'interrupt', trans.__('interrupting…'));
    }
  }

  private async _stop(kernel: IKernel): Promise<void> {
    const [name, node] = [nameOf(kernel), kernel.node];
    const text = trans.__('The kernel of “%1” on %2 ends: its variables are lost, and its GPUs are free for others.', name, node);
    if (await isConfirmed(trans.__('Stop this kernel?'), text, trans.__('Stop'))) {
      await this._call(kernel, 'stop', trans.__('stopping…'));
    }
  }

  private async _log(kernel: IKernel): Promise<void> {
    const rows = rowsOf(await this._call(kernel, 'logs', trans.__('reading the log…')));
    const lines = rows.map(row => (isRecord(row.error) ? problemLine(row.error) : storyLine(row.time, row.text)));
    await this._documents.show(`Log of ${nameOf(kernel)}`, `${trans.__('Kernel %1 on %2', kernel.id, kernel.node)}\n\n${lines.join('\n')}\n`);
  }

  private async _attach(kernel: IKernel): Promise<void> {
    openTerminal(await this._hub.program(), `Attached: ${nameOf(kernel)}`, ['attach', kernel.id]);
  }

  private async _setPriority(kernel: IKernel): Promise<void> {
    const text = await vscode.window.showInputBox({
      title: trans.__('Priority of “%1”', nameOf(kernel)),
      prompt: trans.__('Of your own kernels that wait, the one with the highest priority gets GPUs first (−99 to 99).'),
      value: String(kernel.priority ?? 0),
      validateInput: typed => (isPriority(typed) ? undefined : trans.__('A whole number from −99 to 99'))
    });
    if (text !== undefined && isPriority(text)) {
      await this._call(kernel, 'priority', trans.__('changing the priority…'), { priority: Number(text) });
    }
  }

  private async _open(kernel: IKernel): Promise<void> {
    if (kernel.notebook) {
      const document = await vscode.workspace.openNotebookDocument(vscode.Uri.file(kernel.notebook));
      await vscode.window.showNotebookDocument(document);
    }
  }

  /** Calls the hub about this kernel, and shows that. */
  private async _call(kernel: IKernel, op: string, what: string, values: object = {}): Promise<unknown> {
    const title = `${nameOf(kernel)}: ${what}`;
    const specs = await this._hub.specsForHub();
    const result = await vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title }, () =>
      this._hub.call(op, { kernel: kernel.id, specs, ...values })
    );
    void this._model.refresh();
    return result;
  }

  private async _with(argument: unknown, act: (kernel: IKernel) => Promise<void>): Promise<void> {
    const kernel = this._given(argument) ?? (await this._chosen());
    if (kernel) {
      await act(kernel);
    }
  }

  /** The kernel of a row of the view, or of the active notebook if there is no argument. */
  private _given(argument: unknown): IKernel | undefined {
    const id = idOf(recordOf(argument).kernelId);
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    if (id) {
      return this._all().find(one => one.id === id);
    }
    return notebook && kernelOf(notebook, this._model.kernels);
  }

  private async _chosen(): Promise<IKernel | undefined> {
    const watch = this._model.watchOverview();
    try {
      await this._model.refresh();
    } finally {
      watch.dispose();
    }
    const now = Date.now() / 1000;
    const items = this._all().map(kernel => {
      const view = kernelView(trans, kernel, now);
      return { label: nameOf(kernel), description: `${view.state} · ${view.place}`, kernel };
    });
    const placeHolder = items.length ? trans.__('Which kernel?') : trans.__('No kernel runs');
    return (await vscode.window.showQuickPick(items, { placeHolder }))?.kernel;
  }

  private _all(): readonly IKernel[] {
    return this._model.overview?.kernels ?? this._model.kernels;
  }

  private readonly _hub: Hub;
  private readonly _model: Model;
  private readonly _documents: Documents;
}

/** The name under which the user knows a kernel. */
export function nameOf(kernel: IKernel): string {
  return inert(titleOf(trans, kernel));
}

function isPriority(text: string): boolean {
  return /^-?\d{1,2}$/.test(text.trim()) && Math.abs(Number(text)) <= HIGHEST_PRIORITY;
}

async function isConfirmed(message: string, detail: string, action: string): Promise<boolean> {
  return (await vscode.window.showWarningMessage(message, { modal: true, detail }, action)) === action;
}

function storyLine(time: unknown, text: unknown): string {
  const seconds = numberOf(time);
  return [seconds === null ? '' : `${new Date(seconds * 1000).toLocaleDateString()} ${clock(seconds, true)}`, inert(text, 2000)].join('  ').trim();
}

function problemLine(value: unknown): string {
  const { hop, cause, remedy } = problem(value);
  return `${hop}: ${cause} ${remedy}`.trim();
}
