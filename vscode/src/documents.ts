/**
 * Read-only documents that this extension shows: the log of a kernel, and output that was missed.
 */
import * as vscode from 'vscode';

const SCHEME = 'remote-gpu';
/** Documents that are kept. */
const MOST = 20;

export class Documents implements vscode.TextDocumentContentProvider, vscode.Disposable {
  constructor() {
    this._registration = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  }

  /** Opens a document beside nothing else: the text of the same title is replaced. */
  async show(title: string, text: string): Promise<void> {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${title.replace(/[/\\?#%:]/g, ' ')}.log` });
    this._texts.delete(uri.path);
    this._texts.set(uri.path, text);
    for (const oldest of [...this._texts.keys()].slice(0, -MOST)) {
      this._texts.delete(oldest);
    }
    this._changed.fire(uri);
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument(uri), { preview: true });
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this._texts.get(uri.path) ?? 'This text is not available any more.';
  }

  get onDidChange(): vscode.Event<vscode.Uri> {
    return this._changed.event;
  }

  dispose(): void {
    this._registration.dispose();
    this._changed.dispose();
  }

  private readonly _registration: vscode.Disposable;
  private readonly _changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly _texts = new Map<string, string>();
}
