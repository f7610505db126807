/**
 * The status bar item of the active notebook's kernel: where it runs, its GPUs, the link, and how much time is left.
 */
import * as vscode from 'vscode';

import { kernelOf } from './notebooks.js';
import type { IKernel } from './hub/border.js';
import type { Model } from './model.js';
import { kernelView, trans, viewOf } from './shared/words.js';

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
    const left = notebook && !kernel ? kernelOf(notebook, this._model.left) : undefined;
    this._model.watchedUse = kernel?.id ?? '';
    this._model.wantsLeft = notebook !== undefined && !kernel;
    if (kernel) {
      this._show(kernel);
    } else if (left) {
      this._showLeft(left);
    } else {
      this._item.hide();
    }
  }

  private _show(kernel: IKernel): void {
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

  /** The kernel that this notebook had before the window was closed or reloaded. */
  private _showLeft(kernel: IKernel): void {
    const { state, place } = kernelView(trans, kernel, Date.now() / 1000);
    const text = trans.__('%1 · %2 · the next cell attaches it', place, state);
    this._item.text = `$(server-process) ${text}`;
    this._item.tooltip = trans.__('The kernel of this notebook runs on, with its variables. The next cell that you run uses it, and then this window can show what it missed.');
    this._item.backgroundColor = undefined;
    this._item.command = { command: 'remoteGpu.show', title: 'Show Remote GPUs' };
    this._item.accessibilityInformation = { label: `${text}. Show Remote GPUs`, role: 'button' };
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
