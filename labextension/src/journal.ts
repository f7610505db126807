/**
 * What the work node kept of its last cells, as the server answers it. Pure: it knows neither page nor network.
 */
import type { PartialJSONObject } from '@lumino/coreutils';

export type CellStatus = 'waiting' | 'running' | 'ok' | 'error' | 'aborted';

/** One output message of a cell, in the order in which the kernel sent it. */
export interface IOutputMessage {
  readonly msg_type:
    'stream' | 'display_data' | 'update_display_data' | 'execute_result' | 'error' | 'clear_output';
  readonly content: PartialJSONObject;
}

/** One execution of one cell. */
export interface IRecord {
  /** Of the execute_request. */
  readonly msg_id: string;
  /** The notebook's id of the cell. */
  readonly cell_id: string;
  readonly code: string;
  readonly status: CellStatus;
  readonly execution_count: number | null;
  /** Seconds since 1970, by the node's clock. */
  readonly started: number | null;
  readonly finished: number | null;
  /** Whether some of the output was too much to keep. */
  readonly dropped: boolean;
  readonly outputs: readonly IOutputMessage[];
}

export interface IJournal {
  readonly kernel: string;
  /** Oldest first. */
  readonly cells: readonly IRecord[];
}

export function hasEnded(record: IRecord): boolean {
  return record.status !== 'waiting' && record.status !== 'running';
}

/** All records so far, of which the last of each cell counts. */
export class Records {
  /** A record that is known already takes its old place. */
  add(records: readonly IRecord[]): void {
    for (const record of records) {
      this._all.set(record.msg_id, record);
    }
  }

  get(msgId: string): IRecord | undefined {
    return this._all.get(msgId);
  }

  /** The last execution of a cell. */
  of(cellId: string): IRecord | undefined {
    return [...this._all.values()].filter(each => each.cell_id === cellId).pop();
  }

  private readonly _all = new Map<string, IRecord>();
}
