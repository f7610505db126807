/**
 * Which cells are brought to what the work node says, and how. Pure.
 *
 * JupyterLab empties a cell (no outputs, no number) when it asks for its execution, and numbers it when the reply
 * is there. So a notebook that was saved says by itself how far the page had come:
 *
 * - The source is not the code that ran: the user has edited it since. Left alone.
 * - This page asked for the execution and still hears of it, or asked for another one since: left alone.
 * - The user cleared its outputs, or ended it by restarting the kernel (the page remembers it): left alone.
 * - No number: the notebook was saved in mid-execution, and whatever is shown is a part. Filled.
 * - No number, and some of the record was too much to keep: filled only if nothing is shown.
 * - A number, saved before the record ended: it is of an earlier run. Filled. Whoever saved later saw the end.
 * - The record's number, and outputs that are its beginning: something was printed after the end. Filled.
 *
 * A cell that is being filled is so until its execution has ended, as one that runs: edited meanwhile or not.
 */
import type { IOutput } from '@jupyterlab/nbformat';
import { JSONExt } from '@lumino/coreutils';

// With the ending, for Node's test runner.
import { hasEnded } from './journal.js';
import type { IRecord } from './journal.js';

/** What the page says of a cell. */
export interface ICell {
  readonly source: string;
  readonly executionCount: number | null;
  readonly outputs: readonly IOutput[];
  /** The msg_id of the last execution that this page asked for; null: of none. */
  readonly asked: string | null;
  /** Whether the page still hears of that execution. */
  readonly live: boolean;
  /** When the notebook's file was written, in seconds since 1970. */
  readonly saved: number;
}

/** Whether the cell is to be brought to `record`, whose outputs are `outputs`. */
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

/** What turns one list of outputs into another: a clear, or some set, then the rest added. */
export interface IChange {
  readonly clear: boolean;
  readonly set: readonly number[];
  /** The first index to add. */
  readonly addFrom: number;
}

/** The smallest change, so that what is shown already is not drawn anew; null: none. */
export function changeOf(have: readonly IOutput[], want: readonly IOutput[]): IChange | null {
  if (have.length > want.length) {
    return { clear: true, set: [], addFrom: 0 };
  }
  const set = have.flatMap((each, i) => (JSONExt.deepEqual(each, want[i]!) ? [] : [i]));
  return set.length || have.length < want.length ? { clear: false, set, addFrom: have.length } : null;
}
