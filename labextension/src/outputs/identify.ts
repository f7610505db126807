/**
 * Finds the cells of executions whose requests did not name a cell: those of nbclient, or of a Jupyter server that
 * executes cells by itself. Pure.
 *
 * A cell is found only beyond doubt. It is the only one with this code, and
 *
 * - this browser has run it in this kernel; or
 * - it shows this execution: its number, or no number, and at least the beginning of its outputs; or
 * - it has no number, and the notebook says that it runs; or
 * - it has no number and no outputs, and another cell shows an execution of the same client.
 */
import type { IOutput } from '@jupyterlab/nbformat';

// The imports have a suffix, for Node's test runner.
import type { IRecord } from './journal.js';
import { begins } from './rule.js';
import type { ICell } from './rule.js';

type Cells = ReadonlyMap<string, ICell>;
type OutputsOf = (record: IRecord) => readonly IOutput[];

export interface IFound {
  /** msg_id → the id of the cell. */
  readonly cells: ReadonlyMap<string, string>;
  /** Executions with output that may be of a cell of this notebook, but it is not known which. */
  readonly doubtful: readonly IRecord[];
}

/**
 * `records`: all, oldest first; `hasRun`: whether this browser has run a cell in this kernel; `mayFill`: whether
 * nobody else takes care of a record's outputs.
 */
export function identify(
  records: readonly IRecord[],
  cells: Cells,
  outputsOf: OutputsOf,
  hasRun: (cellId: string) => boolean,
  mayFill: (record: IRecord) => boolean
): IFound {
  const found = new Map<string, string>();
  const open: IRecord[] = [];
  for (const record of lastOfEachCode(records)) {
    const [cellId, ...others] = withCode(cells, record.code);
    const isOnly = cellId !== undefined && others.length === 0;
    if (isOnly && (hasRun(cellId) || shows(cells.get(cellId)!, record, outputsOf(record)))) {
      found.set(record.msg_id, cellId);
    } else if (cellId !== undefined) {
      open.push(record);
    }
  }
  const clients = new Set(records.filter(each => found.has(each.msg_id)).map(each => each.session));
  const doubtful: IRecord[] = [];
  for (const record of open) {
    const [cellId, ...others] = withCode(cells, record.code);
    if (others.length === 0 && record.session && clients.has(record.session) && isBlank(cells.get(cellId!)!)) {
      found.set(record.msg_id, cellId!);
    } else if (mayFill(record) && record.outputs.length && !isShown(cells, record)) {
      doubtful.push(record);
    }
  }
  records.filter(each => !mayFill(each)).forEach(each => found.delete(each.msg_id));
  return { cells: found, doubtful };
}

/** Only the last execution of some code is of interest; if it names its cell, all is known. */
function lastOfEachCode(records: readonly IRecord[]): IRecord[] {
  const last = new Map(records.map(record => [record.code, record]));
  return [...last.values()].filter(record => record.cell_id === '' && record.code.trim() !== '');
}

function withCode(cells: Cells, code: string): string[] {
  return [...cells].filter(([, cell]) => cell.source === code).map(([cellId]) => cellId);
}

function shows(cell: ICell, record: IRecord, outputs: readonly IOutput[]): boolean {
  if (cell.executionCount !== null) {
    return cell.executionCount === record.execution_count && begins(cell.outputs, outputs);
  }
  return cell.running || (cell.outputs.length > 0 && begins(cell.outputs, outputs));
}

function isBlank(cell: ICell): boolean {
  return cell.executionCount === null && cell.outputs.length === 0;
}

/** Whether one of the cells with this code has the number of the execution. */
function isShown(cells: Cells, record: IRecord): boolean {
  const numbers = withCode(cells, record.code).map(cellId => cells.get(cellId)!.executionCount);
  return record.execution_count !== null && numbers.includes(record.execution_count);
}
