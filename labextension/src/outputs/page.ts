/**
 * Reads a notebook's code cells for `rule.ts`, and changes them. It knows JupyterLab's cells, and no kernel.
 */
import type { CodeCell } from '@jupyterlab/cells';
import type { IOutput } from '@jupyterlab/nbformat';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IOutputAreaModel } from '@jupyterlab/outputarea';
import { Widget } from '@lumino/widgets';
import type { PanelLayout } from '@lumino/widgets';

import type { IRecord } from './journal';
import { hasEnded, questionOf } from './journal';
import { changeOf } from './rule';
import type { ICell, IChange } from './rule';

/** What jupyter_server_nbmodel notes in a cell while it executes it. */
const NBMODEL_KEY = 'jupyter_server_nbmodel';

const QUESTION_CLASS = 'jp-RemoteGPU-question';

/** Whether other pages may show and change the same notebook at the same time, as may its server. */
export function isShared(panel: NotebookPanel): boolean {
  return panel.content.model?.collaborative === true;
}

export function codeCells(panel: NotebookPanel): CodeCell[] {
  return panel.content.widgets.filter(each => each.model.type === 'code') as CodeCell[];
}

/** The code cell with this id, if the notebook has it. */
export function cellOf(panel: NotebookPanel, cellId: string): CodeCell | undefined {
  return codeCells(panel).find(each => each.model.id === cellId);
}

/** The msg_id of the last execution of the cell by this page. */
export function askedOf(cell: CodeCell): string | null {
  return futureOf(cell)?.msg.header.msg_id ?? null;
}

/** Whether this page receives the messages of the cell's execution. */
export function isLive(cell: CodeCell): boolean {
  return futureOf(cell)?.isDisposed === false;
}

/** Receives no more messages of the cell's execution, so that it is restored as if the page was loaded anew. */
export function giveUp(cell: CodeCell): void {
  futureOf(cell)?.dispose();
}

export function viewOfCell(panel: NotebookPanel, cell: CodeCell): ICell {
  const saved = Date.parse(panel.context.contentsModel?.last_modified ?? '');
  return {
    source: cell.model.sharedModel.getSource(),
    executionCount: cell.model.executionCount,
    outputs: cell.model.outputs.toJSON(),
    asked: askedOf(cell),
    live: isLive(cell),
    running: cell.model.executionState === 'running' || cell.model.getMetadata(NBMODEL_KEY) !== undefined,
    saved: Number.isNaN(saved) ? 0 : saved / 1000
  };
}

/** Whether restored outputs may run scripts; `unchanged`: keep the user's decision since the restoring began. */
export type Trust = 'trusted' | 'untrusted' | 'unchanged';

/** Scripts in the outputs that the cell gets from now on do not run. */
export function distrust(model: CodeCell['model']): void {
  model.trusted = false;
  model.deleteMetadata('trusted'); // else the notebook is signed with these outputs when it is saved
}

const ANEW: IChange = { clear: true, set: [], addFrom: 0 };

/** Updates the cell from the record. */
export function update(
  cell: CodeCell,
  record: IRecord,
  outputs: readonly IOutput[],
  trust: Trust,
  shared: boolean
): void {
  const { model } = cell;
  const trustChanges = trust !== 'unchanged' && model.trusted !== (trust === 'trusted');
  let change = changeOf(model.outputs.toJSON(), outputs, shared);
  if (trustChanges && (change || trust === 'trusted')) {
    change = ANEW; // the trust replaces all outputs, and JupyterLab does not show what such a text gets afterwards
  }
  if (change?.clear) {
    model.outputs.clear();
  }
  if (change && trust === 'untrusted') {
    distrust(model); // before any output is added
  }
  if (change?.clear && trust === 'trusted') {
    model.trusted = true; // not while it has outputs of another execution
  }
  change?.set.forEach(i => replace(model.outputs, i, outputs[i]!, shared));
  outputs.slice(change?.addFrom ?? outputs.length).forEach(output => model.outputs.add(output));
  const count = hasEnded(record) ? record.execution_count : null;
  if (model.executionCount !== count) {
    model.executionCount = count;
  }
  showRunning(cell, !hasEnded(record));
  showQuestion(cell, questionOf(record));
}

function replace(outputs: IOutputAreaModel, i: number, output: IOutput, shared: boolean): void {
  const shown = outputs.get(i).streamText;
  if (!shared || shown === undefined || output.output_type !== 'stream') {
    return outputs.set(i, output);
  }
  const text = String(output.text);
  let same = 0;
  while (same < text.length && text[same] === shown.text[same]) {
    same++;
  }
  if (same < shown.text.length) {
    shown.remove(same, shown.text.length);
  }
  if (same < text.length) {
    shown.insert(same, text.slice(same));
  }
}

/** Shows [*] or the number in the cell's prompt. */
export function showRunning(cell: CodeCell, running: boolean): void {
  const state = running ? 'running' : 'idle';
  if ((cell.model.executionState as string | undefined) === undefined) {
    cell.setPrompt(running ? '*' : `${cell.model.executionCount ?? ''}`); // an older JupyterLab
  } else if (cell.model.executionState !== state) {
    cell.model.executionState = state;
  }
}

/** Shows the text below the cell's outputs, and not among them, which are saved; '' removes it. */
export function showQuestion(cell: CodeCell, text: string): void {
  const layout = cell.layout as PanelLayout;
  let widget = layout.widgets.find(each => each.hasClass(QUESTION_CLASS));
  if (text === '') {
    return widget?.dispose();
  }
  if (!widget) {
    widget = new Widget();
    widget.addClass(QUESTION_CLASS);
    widget.node.setAttribute('role', 'status');
    layout.addWidget(widget);
  }
  if (widget.node.textContent !== text) {
    widget.node.textContent = text; // a screen reader reads each change
  }
}

function futureOf(cell: CodeCell): CodeCell['outputArea']['future'] | null {
  return (cell.outputArea as CodeCell['outputArea'] | undefined)?.future ?? null;
}
