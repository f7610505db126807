/**
 * Which notebook has which kernel.
 */
import * as vscode from 'vscode';

import type { IKernel } from './hub/border.js';
import { recordOf } from '../../labextension/src/untrusted.js';

const TYPE = 'jupyter-notebook';
/** Microsoft's extension gives a notebook this ending in the sessions of a Jupyter server. */
const SESSION_SUFFIX = /-jvsc-[0-9a-f-]+(\.ipynb)?$/;

/** The name of the kernelspec that the notebook's metadata names; '' if it names none. */
export function kernelspecOf(notebook: vscode.NotebookDocument): string {
  const { metadata, custom } = recordOf(notebook.metadata);
  const inFile = recordOf(metadata ?? recordOf(custom).metadata);
  const { name } = recordOf(inFile.kernelspec);
  return typeof name === 'string' ? name : '';
}

/** The kernel of this notebook among those of front ends on this computer. One that has not ended is preferred. */
export function kernelOf(notebook: vscode.NotebookDocument, kernels: readonly IKernel[]): IKernel | undefined {
  const own = notebook.notebookType === TYPE ? kernels.filter(one => isOf(one.notebook ?? '', notebook.uri)) : [];
  return own.find(one => one.state !== 'ended') ?? own[0];
}

/** The open notebooks of this type that have one of these kernelspecs. */
export function openNotebooks(names: ReadonlySet<string>): vscode.NotebookDocument[] {
  return vscode.workspace.notebookDocuments.filter(one => one.notebookType === TYPE && names.has(kernelspecOf(one)));
}

/** The open notebook of this kernel. */
export function notebookOf(kernel: IKernel): vscode.NotebookDocument | undefined {
  return vscode.workspace.notebookDocuments.find(one => kernelOf(one, [kernel]));
}

function isOf(path: string, uri: vscode.Uri): boolean {
  const plain = path.replace(SESSION_SUFFIX, '$1');
  return plain !== '' && (uri.scheme === 'untitled' ? plain === uri.path : plain === uri.fsPath || path === uri.fsPath);
}
