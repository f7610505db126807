/**
 * The records of a kernel's last cells, which the work node stores. Pure: no page, no network.
 *
 * The node may be compromised. `parseJournal` drops everything that does not have the types declared here.
 */
import type { PartialJSONObject } from '@lumino/coreutils';

// The import has a suffix, for Node's test runner.
import { isRecord, listOf, recordOf } from '../untrusted.js';
import type { Facts } from '../untrusted';
import type { IRemoteKernel } from '../tokens';

const STATUSES = ['waiting', 'running', 'ok', 'error', 'aborted'] as const;

export type CellStatus = (typeof STATUSES)[number];

/** One output message of a cell, in the order in which the kernel sent it. */
export interface IOutputMessage {
  readonly msg_type:
    'stream' | 'display_data' | 'update_display_data' | 'execute_result' | 'error' | 'clear_output';
  readonly content: PartialJSONObject;
}

/** One execution of one cell. */
export interface IRecord {
  /** The id of the execute_request. */
  readonly msg_id: string;
  /** The id of the cell in the notebook; '' if the client that executed the cell did not send it. */
  readonly cell_id: string;
  /** The Jupyter session of that client; '' if the keeper is too old to tell. */
  readonly session: string;
  /** Whether the front end of that client has left the kernel since. */
  readonly left: boolean;
  readonly code: string;
  readonly status: CellStatus;
  readonly execution_count: number | null;
  /** Seconds since 1970, by the node's clock. */
  readonly started: number | null;
  readonly finished: number | null;
  /** Whether some of the output was too large to keep. */
  readonly dropped: boolean;
  /** The prompt of its `input()`, as long as that has no answer; null also if the keeper is too old to tell. */
  readonly asks: string | null;
  readonly outputs: readonly IOutputMessage[];
}

export interface IJournal {
  readonly kernel: string;
  /** Oldest first. */
  readonly cells: readonly IRecord[];
}

/** Whether the node of the kernel with this Jupyter kernel id can be asked now, as far as it is known. */
export function mayAnswer(kernels: readonly IRemoteKernel[], kernelId: string): boolean {
  return kernels.every(row => row.kernel_id !== kernelId || row.link === 'up');
}

/** The journal without malformed records. */
export function parseJournal(answer: unknown): IJournal {
  const { kernel, cells } = recordOf(answer);
  return { kernel: String(kernel ?? ''), cells: listOf(cells).flatMap(parseRecord) };
}

function parseRecord(cell: unknown): IRecord[] {
  if (!isRecord(cell) || !areTexts(cell.msg_id, cell.cell_id, cell.code)) {
    return [];
  }
  if (!STATUSES.includes(cell.status as CellStatus) || !areNumbers(cell.execution_count, cell.started, cell.finished)) {
    return [];
  }
  const outputs = listOf(cell.outputs).filter(isOutputMessage);
  const session = typeof cell.session === 'string' ? cell.session : '';
  const asks = typeof cell.asks === 'string' ? cell.asks : null;
  const known = cell as unknown as IRecord;
  return [{ ...known, session, left: cell.left === true, dropped: cell.dropped === true, asks, outputs }];
}

const hasBundle = ({ data, metadata, transient }: Facts): boolean =>
  isRecord(data) && isRecord(metadata) && isRecord(transient ?? {});

const VALID = new Map<unknown, (content: Facts) => boolean>([
  ['stream', ({ name, text }) => areTexts(name, text)],
  ['display_data', hasBundle],
  ['update_display_data', hasBundle],
  ['execute_result', content => hasBundle(content) && areNumbers(content.execution_count)],
  ['error', ({ ename, evalue, traceback }) => areTexts(ename, evalue) && isListOfTexts(traceback)],
  ['clear_output', () => true]
]);

function isOutputMessage(message: unknown): message is IOutputMessage {
  return isRecord(message) && isRecord(message.content) && VALID.get(message.msg_type)?.(message.content) === true;
}

function areTexts(...values: unknown[]): boolean {
  return values.every(value => typeof value === 'string');
}

function isListOfTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every(each => typeof each === 'string');
}

/** Whether all values are numbers or null. */
function areNumbers(...values: unknown[]): boolean {
  return values.every(value => value === null || Number.isFinite(value));
}

export function hasEnded(record: IRecord): boolean {
  return record.status !== 'waiting' && record.status !== 'running';
}

/** What a cell shows whose `input()` asked a page that is gone; '' if there is no such question. */
export function questionOf(record: IRecord): string {
  const asks = record.asks !== null && !hasEnded(record);
  return asks ? `This cell waits for an answer to input(): “${record.asks}”. To end it, interrupt the kernel.` : '';
}

/** All records so far. The last one of each cell is used. */
export class Records {
  /** A record that is already known replaces its older version. */
  add(records: readonly IRecord[]): void {
    for (const record of records) {
      this._all.set(record.msg_id, record);
    }
  }

  get(msgId: string): IRecord | undefined {
    return this._all.get(msgId);
  }

  /** Oldest first. */
  get all(): readonly IRecord[] {
    return [...this._all.values()];
  }

  /** The cell of a record that has no id of a cell was found. */
  identify(msgId: string, cellId: string): void {
    this._found.set(msgId, cellId);
  }

  /** The id of the record's cell, or ''. */
  cellOf(record: IRecord): string {
    return record.cell_id || (this._found.get(record.msg_id) ?? '');
  }

  /** The record of a cell's last execution. */
  of(cellId: string): IRecord | undefined {
    return this.all.filter(each => this.cellOf(each) === cellId).pop();
  }

  private readonly _all = new Map<string, IRecord>();
  private readonly _found = new Map<string, string>();
}
