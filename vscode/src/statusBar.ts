/**
 * The status bar item of the active notebook's kernel: where it runs, its GPUs, the link, and how much time is left.
 */
import * as vscode from 'vscode';

import { kernelOf } from './notebooks.js';
import type { Model } from './model.js';
import { trans, viewOf } from './shared/words.js';

export class StatusBar implements vscode.Disposable {
  constructor(model: Model) {
    this._model = model;
    this._item = vscode.window.createStatusBarItem('remoteGpu.status', vscode.StatusBarAlignment.Left, 1);
    this._item.name = 'Remote GPU';
    this._parts = [
      this._item,
      model.changed(() => this._update()),
      vscode.window.onDidChangeActiveNotebookEditor(() => this._follow())
    ];
    this._follow();
  }

  dispose(): void {
    this._parts.forEach(part => part.dispose());
  }

  private _follow(): void {
    this._update();
    void this._model.refresh();
  }

  private _update(): void {
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    const kernel = notebook && kernelOf(notebook, this._model.kernels);
    this._model.watchedUse = kernel?.id ?? '';
    if (!kernel) {
      return this._item.hide();
    }
    const view = viewOf(kernel, this._model.usesOf(kernel.id), Date.now() / 1000, trans);
    this._item.text = `$(server-process) ${view.text}`;
    this._item.tooltip = view.tooltip;
    this._item.backgroundColor = BACKGROUND[view.level];
    this._item.command = view.signIn
      ? { command: 'remoteGpu.signIn', title: 'Sign in', arguments: [kernel.name] }
      : { command: 'remoteGpu.show', title: 'Show Remote GPUs' };
    const hint = view.signIn ? 'Sign in' : 'Show Remote GPUs';
    this._item.accessibilityInformation = { label: `${view.text}. ${hint}`, role: 'button' };
    this._item.show();
  }

  private readonly _model: Model;
  private readonly _item: vscode.StatusBarItem;
  private readonly _parts: readonly vscode.Disposable[];
}

const BACKGROUND = {
  normal: undefined,
  attention: new vscode.ThemeColor('statusBarItem.warningBackground'),
  problem: new vscode.ThemeColor('statusBarItem.errorBackground')
};
