/**
 * *Show what was missed*: cells that ended while their window was gone. What they printed comes from the kernel's log.
 *
 * It replaces the outputs of the cell, or is shown as text. The log is the node's, so that nothing of it is put into the
 * notebook that could run in this window: texts and pictures, no HTML.
 */
import * as vscode from 'vscode';

import type { Documents } from './documents.js';
import type { IKernel } from './hub/border.js';
import type { Hub } from './hub/hub.js';
import type { Model } from './model.js';
import { kernelOf } from './notebooks.js';
import { clock, parseJournal, trans } from './shared/words.js';
import type { IOutputMessage, IRecord } from './shared/words.js';
import { recordOf } from '../../labextension/src/untrusted.js';

/** Milliseconds between two looks at a cell that still runs. */
const INTERVAL = 10_000;
const PICTURES = ['image/png', 'image/jpeg'];
const TEXTS = ['application/vnd.code.notebook.stdout', 'application/vnd.code.notebook.stderr', 'text/plain'];
const ERROR = 'application/vnd.code.notebook.error';

interface IAsked {
  time: number;
  isDone: boolean;
}

/** A cell of an open notebook, and its record in the log. */
export interface IMissed {
  readonly cell: vscode.NotebookCell;
  readonly record: IRecord;
}

export class Missed implements vscode.NotebookCellStatusBarItemProvider, vscode.Disposable {
  constructor(hub: Hub, model: Model, documents: Documents) {
    this._hub = hub;
    this._model = model;
    this._documents = documents;
    this._parts = [
      this._changed,
      model.changed(() => this._look()),
      vscode.notebooks.registerNotebookCellStatusBarItemProvider('jupyter-notebook', this)
    ];
  }

  get onDidChangeCellStatusBarItems(): vscode.Event<void> {
    return this._changed.event;
  }

  provideCellStatusBarItems(cell: vscode.NotebookCell): vscode.NotebookCellStatusBarItem | undefined {
    const missed = this._missed.find(one => one.cell === cell);
    if (!missed) {
      return undefined;
    }
    const item = new vscode.NotebookCellStatusBarItem(`$(history) ${trans.__('Show what was missed')}`, vscode.NotebookCellStatusBarAlignment.Left);
    item.command = { command: 'remoteGpu.missed', title: 'Show What Was Missed', arguments: [cell] };
    item.tooltip = trans.__('This cell ended while its window was gone.');
    item.accessibilityInformation = { label: trans.__('Show what this cell printed while its window was gone'), role: 'button' };
    return item;
  }

  /** Shows what this cell has missed, or all cells of the active notebook. */
  async show(argument: unknown): Promise<void> {
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    const wanted = this._missed.filter(one => (argument ? one.cell === argument : one.cell.notebook === notebook));
    if (!wanted.length) {
      void vscode.window.showInformationMessage(trans.__('No cell of this notebook ended while its window was gone.'));
    } else if (!(await this._putIntoCells(wanted))) {
      await this.showAsText(wanted);
    }
  }

  /** The missed output as a document. */
  async showAsText(wanted: readonly IMissed[] = this._missed): Promise<void> {
    const texts = wanted.map(({ record }) => [...headOf(record), textOf(record.outputs)].join('\n'));
    await this._documents.show('What was missed', texts.join('\n\n'));
  }

  dispose(): void {
    this._parts.forEach(part => part.dispose());
  }

  private _look(): void {
    for (const notebook of vscode.workspace.notebookDocuments) {
      const kernel = kernelOf(notebook, this._model.kernels);
      if (kernel?.link === 'up' && ['idle', 'busy'].includes(kernel.state) && this._isDue(kernel)) {
        void this._ask(notebook, kernel);
      }
    }
  }

  /** The log is read when this window sees the kernel first, and again while a cell of a window that is gone runs. */
  private _isDue({ id }: IKernel): boolean {
    const asked = this._asked.get(id);
    return !asked || (!asked.isDone && Date.now() - asked.time > INTERVAL);
  }

  private async _ask(notebook: vscode.NotebookDocument, { id }: IKernel): Promise<void> {
    const asked = { time: Date.now(), isDone: false };
    this._asked.set(id, asked);
    let records: readonly IRecord[];
    try {
      records = parseJournal(await this._hub.call('journal', { kernel: id }, { start: false })).cells;
    } catch {
      return; // the node cannot be asked now
    }
    asked.isDone = records.every(one => !one.left || one.finished !== null);
    const missed = missedIn(notebook.getCells(), records);
    const isNew = missed.length > this._missed.filter(one => one.cell.notebook === notebook).length;
    this._missed = [...this._missed.filter(one => one.cell.notebook !== notebook), ...missed];
    this._changed.fire();
    if (isNew) {
      await this._tell(missed);
    }
  }

  private async _tell(missed: readonly IMissed[]): Promise<void> {
    const [inCells, asText] = [trans.__('Show in the Cells'), trans.__('Show as Text')];
    const text = trans._n('A cell ended while its window was gone.', '%1 cells ended while their window was gone.', missed.length);
    const chosen = await vscode.window.showInformationMessage(text, inCells, asText);
    if (chosen === inCells) {
      await this._putIntoCells(missed);
    } else if (chosen === asText) {
      await this.showAsText(missed);
    }
  }

  /** Replaces the outputs, which the user can undo. Returns whether that was possible. */
  private async _putIntoCells(missed: readonly IMissed[]): Promise<boolean> {
    const edit = new vscode.WorkspaceEdit();
    const present = missed.filter(one => one.cell.index >= 0); // others were deleted
    for (const notebook of new Set(present.map(one => one.cell.notebook))) {
      const own = present.filter(one => one.cell.notebook === notebook);
      edit.set(notebook.uri, own.map(({ cell, record }) => replacement(cell, record)));
    }
    const isDone = present.length > 0 && (await vscode.workspace.applyEdit(edit));
    if (isDone) {
      this._missed = this._missed.filter(one => !missed.includes(one));
      this._changed.fire();
    }
    return isDone;
  }

  private readonly _hub: Hub;
  private readonly _model: Model;
  private readonly _documents: Documents;
  private readonly _changed = new vscode.EventEmitter<void>();
  private readonly _parts: readonly vscode.Disposable[];
  private readonly _asked = new Map<string, IAsked>();
  private _missed: readonly IMissed[] = [];
}

/** The cells that do not show what the last execution of their code printed, whose front end has left. */
export function missedIn(cells: readonly vscode.NotebookCell[], records: readonly IRecord[]): IMissed[] {
  const found = new Map<vscode.NotebookCell, IRecord>();
  for (const record of records) {
    const same = cells.filter(cell => cell.document.getText() === record.code);
    const cell = same.find(one => one.document.uri.toString() === record.cell_id) ?? (same.length === 1 ? same[0] : undefined);
    if (cell) {
      found.set(cell, record); // a later one replaces an earlier one
    }
  }
  return [...found]
    .filter(([cell, record]) => record.left && record.finished !== null && shownIn(cell) !== textOf(record.outputs))
    .map(([cell, record]) => ({ cell, record }));
}

function headOf(record: IRecord): string[] {
  const time = record.finished === null ? '' : trans.__('ended at %1', clock(record.finished, true));
  return [`[${record.execution_count ?? ' '}] ${record.status} ${time}`.trim(), ...record.code.split('\n').map(line => `    ${line}`)];
}

/** The text of outputs as it is compared and shown. */
function textOf(outputs: readonly IOutputMessage[]): string {
  return outputs
    .map(({ msg_type, content }) => {
      if (msg_type === 'error') {
        return errorLine(content.ename, content.evalue);
      }
      const data = recordOf(content.data);
      return msg_type === 'stream' ? String(content.text) : texts(data['text/plain']);
    })
    .join('')
    .replace(/\x1b\[[0-9;]*[A-Za-z]/g, '');
}

/** The text that a cell shows, as `textOf` has it of a record. */
function shownIn(cell: vscode.NotebookCell): string {
  return cell.outputs
    .flatMap(output => output.items.filter(item => item.mime === ERROR || TEXTS.includes(item.mime)).slice(0, 1))
    .map(textIn)
    .join('')
    .replace(/\x1b\[[0-9;]*[A-Za-z]/g, '');
}

function textIn({ mime, data }: vscode.NotebookCellOutputItem): string {
  const text = new TextDecoder().decode(data);
  return mime === ERROR ? errorIn(text) : text;
}

/** The line of an error item, which is JSON; '' if it is malformed. */
function errorIn(text: string): string {
  try {
    const { name, message } = recordOf(JSON.parse(text));
    return errorLine(name, message);
  } catch {
    return '';
  }
}

function errorLine(name: unknown, message: unknown): string {
  return `${String(name)}: ${String(message)}\n`;
}

/** nbformat's texts may be lists of lines. */
function texts(value: unknown): string {
  return Array.isArray(value) ? value.map(String).join('') : typeof value === 'string' ? value : '';
}

function replacement(cell: vscode.NotebookCell, record: IRecord): vscode.NotebookEdit {
  return vscode.NotebookEdit.replaceCells(new vscode.NotebookRange(cell.index, cell.index + 1), [cellData(cell, record)]);
}

function cellData(cell: vscode.NotebookCell, record: IRecord): vscode.NotebookCellData {
  const data = new vscode.NotebookCellData(cell.kind, cell.document.getText(), cell.document.languageId);
  data.metadata = { ...cell.metadata, execution_count: record.execution_count }; // from there it goes into the file
  data.outputs = record.outputs.flatMap(outputOf);
  const [startTime, endTime] = [record.started, record.finished].map(time => (time ?? 0) * 1000);
  data.executionSummary = {
    executionOrder: record.execution_count ?? undefined,
    success: record.status === 'ok',
    timing: { startTime: startTime!, endTime: endTime! }
  };
  return data;
}

/** Texts and pictures only. */
function outputOf({ msg_type, content }: IOutputMessage): vscode.NotebookCellOutput[] {
  const item = vscode.NotebookCellOutputItem;
  if (msg_type === 'stream') {
    const text = String(content.text);
    return [new vscode.NotebookCellOutput([content.name === 'stderr' ? item.stderr(text) : item.stdout(text)])];
  }
  if (msg_type === 'error') {
    const stack = Array.isArray(content.traceback) ? content.traceback.map(String).join('\n') : '';
    return [new vscode.NotebookCellOutput([item.error({ name: String(content.ename), message: String(content.evalue), stack })])];
  }
  const data = recordOf(content.data);
  const pictures = PICTURES.filter(mime => typeof data[mime] === 'string').map(
    mime => new item(Buffer.from(data[mime] as string, 'base64'), mime)
  );
  const plain = texts(data['text/plain']);
  const items = [...pictures, ...(plain ? [item.text(plain, 'text/plain')] : [])];
  return items.length ? [new vscode.NotebookCellOutput(items)] : [];
}
