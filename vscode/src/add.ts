/**
 * *Add a remote GPU…*: the machine, the way, and the name, step by step; then our program looks at the machine, and
 * writes the kernelspec. The hub connects first, so that its questions are asked here.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as vscode from 'vscode';

import { inert, rowsOf, specNameOf, textsOf } from './hub/border.js';
import type { Asker } from './hub/client.js';
import type { Hub } from './hub/hub.js';
import { callProgram } from './installation.js';
import type { Questions } from './questions.js';
import { openTerminal } from './terminal.js';
import { trans } from './shared/words.js';
import { listOf, recordOf } from '../../labextension/src/untrusted.js';
import type { Facts } from '../../labextension/src/untrusted.js';

const TITLE = trans.__('Add a Remote GPU');
/** Seconds for the look at the machine. */
const PROBE_TIMEOUT = 180;

interface IMachine {
  readonly destination: string;
  /** Jump hosts, separated by commas; '' as the ssh configuration says. */
  readonly jumps: string;
}

export class Add {
  constructor(hub: Hub, questions: Questions) {
    this._hub = hub;
    this._questions = questions;
  }

  /** Returns the name of the new kernelspec; undefined if the user has left, or it failed, which is told. */
  async run(): Promise<string | undefined> {
    const program = await this._hub.program();
    const machine = await this._machine(program);
    const name = machine && (await this._name(machine));
    if (!machine || !name) {
      return undefined;
    }
    const words = ['add', machine.destination, ...(machine.jumps ? ['-J', machine.jumps] : []), '--name', name];
    try {
      const found = await this._added(program, name, words);
      this._hub.forgetSpecs();
      return found === null ? undefined : await this._tellAdded(recordOf(found));
    } catch (error) {
      await this._tellFailed(program, words, error as Error);
      return undefined;
    }
  }

  /** Connects, looks at the machine, and writes the kernelspec. null: the user has ended that. */
  private async _added(program: string, name: string, words: readonly string[]): Promise<unknown> {
    const options = { location: vscode.ProgressLocation.Notification, title: trans.__('Adding %1', name), cancellable: true };
    return vscode.window.withProgress(options, async (progress, token) => {
      const controller = new AbortController();
      token.onCancellationRequested(() => controller.abort());
      const onProgress = (message: string): void => progress.report({ message });
      try {
        const ask = this._asker(program, name, words, controller);
        const settings = await this._settings(program, words);
        await this._hub.call('login', { name: '', settings }, { timeout: 0, signal: controller.signal, onProgress, ask });
        onProgress(trans.__('looking at the machine'));
        return await callProgram(program, [...words, '--json'], PROBE_TIMEOUT, controller.signal);
      } catch (error) {
        if (!controller.signal.aborted) {
          throw error;
        }
        if (token.isCancellationRequested) {
          void vscode.window.showInformationMessage(trans.__('Nothing was added.'));
        }
        return null;
      }
    });
  }

  /** Asks the questions of the connection. `controller` is aborted when the user does not want to answer here. */
  private _asker(program: string, name: string, words: readonly string[], controller: AbortController): Asker {
    const inTerminal = (): void => {
      controller.abort();
      openTerminal(program, TITLE, words);
    };
    const purpose = { what: 'probe', name, notebook: '', openTerminal: inTerminal } as const;
    return async (question, closed) => {
      const answer = await this._questions.ask(question, purpose, closed);
      if (answer === 'cancel') {
        controller.abort();
      }
      return answer;
    };
  }

  /** Asks for the machine: a host of the ssh configuration, or another one. */
  private async _machine(program: string): Promise<IMachine | undefined> {
    const other = { label: trans.__('Another machine…'), description: 'user@host', name: '' };
    const hosts = rowsOf(await callProgram(program, ['vscode', 'hosts'])).map(row => {
      const [name, jumps] = [inert(row.name), textsOf(row.jumps)];
      const user = row.user ? trans.__('as %1', inert(row.user)) : '';
      const way = jumps.length ? trans.__('through %1', jumps.join(', ')) : '';
      return { label: name, description: [user, way].filter(Boolean).join(' '), name };
    });
    const placeHolder = trans.__('Step 1 of 2: a machine with GPUs, from your ssh configuration or another one');
    const chosen = await vscode.window.showQuickPick([...hosts, other], { title: TITLE, placeHolder, ignoreFocusOut: true });
    return chosen?.name ? { destination: chosen.name, jumps: '' } : chosen && this._otherMachine();
  }

  private async _otherMachine(): Promise<IMachine | undefined> {
    const destination = await asked({
      prompt: trans.__('Step 1 of 2: the machine with the GPUs, as you would give it to ssh: user@host, or user@host:port'),
      validateInput: text => (isDestination(text) ? undefined : trans.__('For example: alice@gpu2'))
    });
    const jumps =
      destination &&
      (await asked({
        prompt: trans.__('Through which hosts, separated by commas? Empty: directly, or as your ssh configuration says.'),
        placeHolder: 'alice@login:7092',
        validateInput: text => (!text || text.split(',').every(isDestination) ? undefined : trans.__('For example: alice@login'))
      }));
    return destination === undefined || jumps === undefined ? undefined : { destination, jumps };
  }

  private async _name({ destination }: IMachine): Promise<string | undefined> {
    const taken = new Set((await this._hub.specs()).map(spec => spec.name));
    const host = destination.replace(/^.*@/, '').replace(/:\d+$/, '');
    return asked({
      prompt: trans.__('Step 2 of 2: its name in the list of kernels'),
      value: host.toLowerCase().replace(/[^a-z0-9._-]+/g, '-'),
      validateInput: text => {
        if (!specNameOf(text) || text !== text.toLowerCase()) {
          return trans.__('Small letters, digits, “.”, “_” and “-”');
        }
        return taken.has(text) ? trans.__('There is a remote GPU with this name.') : undefined;
      }
    });
  }

  /** What the hub needs to connect: the settings of a kernelspec that nobody else sees. */
  private async _settings(program: string, words: readonly string[]): Promise<unknown> {
    const folder = await mkdtemp(join(tmpdir(), 'remote-gpu-'));
    try {
      const { settings } = recordOf(await callProgram(program, [...words, '--no-probe', '--prefix', folder, '--json']));
      return settings;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  private async _tellAdded(spec: Facts): Promise<string> {
    const gpus = listOf(recordOf(spec.probe).gpus).length;
    const found = gpus ? trans._n('It has 1 GPU.', 'It has %1 GPUs.', gpus) : '';
    const how = trans.__('Choose it for a notebook: Select Kernel → Jupyter Kernel….');
    void vscode.window.showInformationMessage([trans.__('“%1” was added.', inert(spec.display_name)), found, how].filter(Boolean).join(' '));
    return specNameOf(spec.name);
  }

  private async _tellFailed(program: string, words: readonly string[], error: Error): Promise<void> {
    const terminal = 'Open a Terminal';
    const chosen = await vscode.window.showErrorMessage(trans.__('Nothing was added. %1', error.message), terminal);
    if (chosen === terminal) {
      openTerminal(program, TITLE, words);
    }
  }

  private readonly _hub: Hub;
  private readonly _questions: Questions;
}

async function asked(options: vscode.InputBoxOptions): Promise<string | undefined> {
  return (await vscode.window.showInputBox({ title: TITLE, ignoreFocusOut: true, ...options }))?.trim();
}

/** Whether this is a destination, and neither an option nor anything with blanks. */
function isDestination(text: string): boolean {
  return /^[^\s,-][^\s,]*$/.test(text.trim());
}
