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
 * - The record's number, this page executed the cell, and the cell lacks outputs in between (`hasGap`): they were lost
 *   while the page was not connected. Restored, unless some of the record was dropped.
 *
 * The restoring of a cell goes on until its execution has ended, also if the user edits the cell meanwhile.
 *
 * A cell that still receives its messages after the page was connected again is compared (`hasGap`), since messages
 * may be lost that the server wrote into the former connection.
 *
 * Records without the id of a cell are in `identify.ts`, other pages with the same notebook in `pages.ts`.
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
  /** Whether the notebook says that it runs, here or elsewhere. */
  readonly running: boolean;
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
  return cell.executionCount === record.execution_count && (begins(cell.outputs, outputs) || hasLost(cell, record, outputs));
}

/** Whether the page, which executed the cell, has missed outputs before the end of the execution. */
function hasLost(cell: ICell, record: IRecord, outputs: readonly IOutput[]): boolean {
  return cell.asked === record.msg_id && hasEnded(record) && !record.dropped && hasGap(cell.outputs, outputs);
}

function isOlder(cell: ICell, record: IRecord): boolean {
  return hasEnded(record) ? record.finished !== null && cell.saved < record.finished : true;
}

/**
 * Whether the page has missed outputs of an execution that it asked for, and whose messages it receives. It has if the
 * connection was lost while the server still wrote into it. `shown`: what the cell shows.
 */
export function hasGap(shown: readonly IOutput[], outputs: readonly IOutput[]): boolean {
  return !begins(shown, outputs) && !begins(outputs, shown);
}

/** Whether `outputs` begin with `part`. */
export function begins(part: readonly IOutput[], outputs: readonly IOutput[]): boolean {
  const last = part.length - 1;
  return part.every((each, i) => {
    const other = outputs[i];
    return other !== undefined && (JSONExt.deepEqual(each, other) || (i === last && continues(each, other)));
  });
}

function continues(part: IOutput, whole: IOutput): boolean {
  return isSameStream(part, whole) && String(whole.text).startsWith(String(part.text));
}

/** A change of one list of outputs into another: clear it or replace some outputs, then add the rest. */
export interface IChange {
  readonly clear: boolean;
  readonly set: readonly number[];
  /** The first index to add. */
  readonly addFrom: number;
}

/**
 * The smallest change, so that unchanged outputs are not rendered again; null: no change.
 *
 * `shared`: the notebook is shared with other pages. JupyterLab moves an output that was replaced to the end of
 * theirs, and appends a text that was replaced to the former one.
 */
export function changeOf(have: readonly IOutput[], want: readonly IOutput[], shared: boolean): IChange | null {
  const set = have.flatMap((each, i) => (JSONExt.deepEqual(each, want[i] ?? null) ? [] : [i]));
  const last = have.length - 1;
  const mayBeSet = (i: number): boolean =>
    isText(have[i]) || isText(want[i]) ? isSameStream(have[i]!, want[i]!) : !shared || i === last;
  if (have.length > want.length || !set.every(mayBeSet)) {
    return { clear: true, set: [], addFrom: 0 };
  }
  return set.length || have.length < want.length ? { clear: false, set, addFrom: have.length } : null;
}

function isText(output: IOutput | undefined): boolean {
  return output?.output_type === 'stream';
}

function isSameStream(one: IOutput, other: IOutput): boolean {
  return isText(one) && isText(other) && one.name === other.name;
}
