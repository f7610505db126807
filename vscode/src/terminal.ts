/**
 * Our program in a terminal: the way out for whoever wants to answer questions there.
 */
import * as vscode from 'vscode';

/** Runs the program with these words, without a shell. The terminal closes when that has ended well. */
export function openTerminal(program: string, title: string, words: readonly string[]): void {
  const terminal = vscode.window.createTerminal({
    name: title,
    shellPath: program,
    shellArgs: [...words],
    iconPath: new vscode.ThemeIcon('server-process'),
    isTransient: true
  });
  terminal.show();
}
