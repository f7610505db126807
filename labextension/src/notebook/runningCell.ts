/**
 * The cell of a notebook that runs, or the first one that waits; remembered over a reload of the page, since the node
 * may be out of reach then.
 */
import type { CodeCell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';

import { cellOf, codeCells } from '../outputs/page';

const KEY = 'jupyter-gpu-kernel:running:';

/** The first cell whose prompt is [*]; or else, if `isBusy`, the one that had it in this browser tab with this kernel. */
export function runningCell(panel: NotebookPanel, kernelId: string, isBusy: boolean): CodeCell | null {
  const cell = codeCells(panel).find(isRunning);
  if (cell || !isBusy) {
    return cell ?? null;
  }
  const id = window.sessionStorage.getItem(KEY + kernelId);
  return (id !== null && cellOf(panel, id)) || null;
}

/** Remembers the running cell, or that none is. Call it when the kernel's state has changed. */
export function rememberRunning(panel: NotebookPanel, kernelId: string, isBusy: boolean): void {
  const cell = codeCells(panel).find(isRunning);
  if (cell) {
    window.sessionStorage.setItem(KEY + kernelId, cell.model.id);
  } else if (!isBusy) {
    window.sessionStorage.removeItem(KEY + kernelId);
  }
}

function isRunning(cell: CodeCell): boolean {
  const state = cell.model.executionState as string | undefined;
  return state === undefined ? !!cell.promptNode?.textContent?.includes('*') : state === 'running';
}
