/**
 * Decides which cells are restored from the work node's records, and how. Pure.
 *
 * JupyterLab clears a cell (no outputs, no number) when it executes the cell, and sets the number when the reply
 * arrives. So a saved notebook shows which part of an execution the page had received:
 *
 * - The source differs from the code of the record: the user has edited it since. Not restored.
 * - This page executed the cell and still receives its messages, or executed it again since: not restored.
 * - The user cleared its outputs, or restarted the kernel (the page remembers this): not restored.
 * - No number: the notebook was saved during the execution, and shows a part of the outputs. Restored.
 * - No number, and some of the record was dropped: restored only if the cell shows nothing.
 * - A number, and the notebook was saved before the record ended: the number is of an earlier execution. Restored.
 * - The record's number, and outputs that are the beginning of the record's: more was printed later. Restored.
 *
 * The restoring of a cell goes on until its execution has ended, also if the user edits the cell meanwhile.
 */
import type { IOutput } from '@jupyterlab/nbformat';
import { JSONExt } from '@lumino/coreutils';

// The import has a suffix, for Node's test runner.
import { hasEnded } from './journal.js';
import type { IRecord } from './journal.js';

/** The state of a cell in the page. */
export interface ICell {
  readonly source: string;
  readonly executionCount: number | null;
  readonly outputs: readonly IOutput[];
  /** The msg_id of the last execution by this page, or null. */
  readonly asked: string | null;
  /** Whether the page still receives messages of that execution. */
  readonly live: boolean;
  /** When the notebook's file was written, in seconds since 1970. */
  readonly saved: number;
}

/** Whether the cell must be restored from `record`, whose outputs are `outputs`. */
export function isBehind(cell: ICell, record: IRecord, outputs: readonly IOutput[]): boolean {
  if (cell.source !== record.code || cell.live || (cell.asked ?? record.msg_id) !== record.msg_id) {
    return false;
  }
  if (cell.executionCount === null) {
    return !record.dropped || cell.outputs.length === 0;
  }
  if (isOlder(cell, record)) {
    return true;
  }
  return cell.executionCount === record.execution_count && begins(cell.outputs, outputs);
}

function isOlder(cell: ICell, record: IRecord): boolean {
  return hasEnded(record) ? record.finished !== null && cell.saved < record.finished : true;
}

/** Whether `outputs` begin with `part`. */
function begins(part: readonly IOutput[], outputs: readonly IOutput[]): boolean {
  const last = part.length - 1;
  return part.every((each, i) => {
    const other = outputs[i];
    return other !== undefined && (JSONExt.deepEqual(each, other) || (i === last && continues(each, other)));
  });
}

function continues(part: IOutput, whole: IOutput): boolean {
  const isText = part.output_type === 'stream' && whole.output_type === 'stream' && part.name === whole.name;
  return isText && String(whole.text).startsWith(String(part.text));
}

/** A change of one list of outputs into another: clear it or set some outputs, then add the rest. */
export interface IChange {
  readonly clear: boolean;
  readonly set: readonly number[];
  /** The first index to add. */
  readonly addFrom: number;
}

/** The smallest change, so that unchanged outputs are not rendered again; null: no change. */
export function changeOf(have: readonly IOutput[], want: readonly IOutput[]): IChange | null {
  if (have.length > want.length) {
    return { clear: true, set: [], addFrom: 0 };
  }
  const set = have.flatMap((each, i) => (JSONExt.deepEqual(each, want[i]!) ? [] : [i]));
  return set.length || have.length < want.length ? { clear: false, set, addFrom: have.length } : null;
}
