/**
 * The entry of the extension. It starts nothing until an open notebook has one of our kernels, or a command is used.
 */
import * as vscode from 'vscode';

import { Add } from './add.js';
import { Documents } from './documents.js';
import { specNameOf } from './hub/border.js';
import { Hub } from './hub/hub.js';
import { SignInRequests } from './hub/signInRequests.js';
import { findInstallation } from './installation.js';
import { JupyterServers } from './jupyterServers.js';
import { KernelCommands } from './kernelCommands.js';
import { Missed } from './missed.js';
import { Model } from './model.js';
import { Notices } from './notices.js';
import { openNotebooks } from './notebooks.js';
import { Questions } from './questions.js';
import { SignIn } from './signIn.js';
import { StatusBar } from './statusBar.js';
import { Tree } from './tree.js';

const ON_WINDOWS = [
  'Remote GPU Kernels does not work in VS Code on Windows, and does nothing there; kernels work without it.',
  'It works in WSL, and on Linux hosts to which VS Code connects.'
].join(' ');

export function activate(context: vscode.ExtensionContext, platform = process.platform): void {
  if (platform === 'win32') {
    void vscode.window.showInformationMessage(ON_WINDOWS);
    return;
  }
  const session = new Session(context);
  context.subscriptions.push(session);
  void session.look();
}

/** What runs in one window. */
class Session implements vscode.Disposable {
  constructor({ secrets, storageUri }: vscode.ExtensionContext) {
    this._servers = new JupyterServers(this._hub, secrets, storageUri);
    this._parts.push(this._servers);
    const look = (): void => void this.look();
    const commands = { ...new KernelCommands(this._hub, this._model, this._documents).all, ...this._commands() };
    for (const [name, run] of Object.entries(commands)) {
      this._parts.push(vscode.commands.registerCommand(name, argument => telling(() => run(argument))));
    }
    this._parts.push(
      vscode.workspace.onDidOpenNotebookDocument(look),
      vscode.workspace.onDidCloseNotebookDocument(look),
      vscode.workspace.onDidChangeNotebookDocument(change => change.metadata && look())
    );
  }

  /** Begins to follow kernels when a notebook has one of ours, and ends that when none has. */
  async look(): Promise<void> {
    const installation = vscode.workspace.notebookDocuments.length ? await this._hub.installation() : null;
    if (installation?.names.size) {
      void this._servers.register().catch(() => undefined); // that extension may be another version
    }
    const isNeeded = installation !== null && openNotebooks(installation.names).length > 0;
    if (isNeeded) {
      this._signInRequests ??= this._lookForRequests(); // comes first, as it starts the hub that all others only ask
    }
    if (isNeeded && !this._following) {
      this._missed = new Missed(this._hub, this._model, this._documents);
      this._following = vscode.Disposable.from(
        this._missed,
        this._model.watchKernels(),
        new StatusBar(this._model),
        new Notices(this._hub, this._model, this._signIn)
      );
    } else if (!isNeeded && this._following) {
      this._following.dispose();
      this._following = undefined;
      this._hub.release();
    }
  }

  dispose(): void {
    this._following?.dispose();
    this._parts.forEach(part => part.dispose());
    void this._signInRequests?.then(requests => requests?.dispose());
    this._hub.disconnect();
  }

  /** Without this, launchers say what to do in a terminal. The next look tries again if it fails. */
  private async _lookForRequests(): Promise<SignInRequests | undefined> {
    try {
      const { signIns } = await this._hub.place();
      const requests = new SignInRequests(signIns, (kernel, gone) => this._signIn.answer(kernel, gone));
      this._parts.push(requests);
      return requests;
    } catch {
      this._signInRequests = undefined;
      return undefined;
    }
  }

  private _commands(): Record<string, (argument: unknown) => Promise<unknown>> {
    return {
      'remoteGpu.show': async () => vscode.commands.executeCommand('remoteGpu.view.focus'),
      'remoteGpu.add': async () => {
        await this._add.run();
        await this._model.refresh();
      },
      'remoteGpu.missed': async argument => this._missed?.show(argument),
      'remoteGpu.refresh': () => this._model.refresh(),
      'remoteGpu.signIn': async argument => this._withSpec(argument, name => this._signIn.run(name)),
      'remoteGpu.signInInTerminal': async argument => this._withSpec(argument, name => this._signIn.runInTerminal(name))
    };
  }

  /** Calls `run` with the name of a kernelspec: the given one, or one that the user chooses. */
  private async _withSpec(argument: unknown, run: (name: string) => Promise<unknown>): Promise<void> {
    const given = specNameOf(argument) || specNameOf((argument as { specName?: unknown } | undefined)?.specName);
    const name = given || (await this._chosenSpec());
    if (name) {
      await run(name);
    }
  }

  private async _chosenSpec(): Promise<string | undefined> {
    const items = (await this._hub.specs()).map(({ name, displayName }) => ({ label: displayName, name }));
    const placeHolder = items.length ? 'To which one?' : 'There is no remote GPU yet';
    return (await vscode.window.showQuickPick(items, { placeHolder }))?.name;
  }

  private readonly _hub = new Hub(() => findInstallation(programSetting()));
  private readonly _model = new Model(this._hub);
  private readonly _documents = new Documents();
  private readonly _questions = new Questions();
  private readonly _signIn = new SignIn(this._hub, this._questions);
  private readonly _add = new Add(this._hub, this._questions);
  private readonly _servers: JupyterServers;
  private readonly _parts: vscode.Disposable[] = [new Tree(this._model), this._model, this._documents];
  private _missed: Missed | undefined;
  private _following: vscode.Disposable | undefined;
  private _signInRequests: Promise<SignInRequests | undefined> | undefined;
}

/** Shows an error of a command. */
async function telling(run: () => Promise<unknown>): Promise<void> {
  try {
    await run();
  } catch (error) {
    void vscode.window.showErrorMessage((error as Error).message);
  }
}

function programSetting(): string {
  return vscode.workspace.getConfiguration('remoteGpu').get('program', '');
}
