/**
 * Restores the outputs that the page of one notebook has missed. It requests the journal at every (re)connection
 * to a kernel, and repeatedly while a cell runs.
 *
 * `rule.ts` decides which cells change. Failed requests are repeated without a message to the user.
 */
import { CodeCellModel } from '@jupyterlab/cells';
import type { Cell, CodeCell } from '@jupyterlab/cells';
import { NotebookActions } from '@jupyterlab/notebook';
import type { Notebook, NotebookPanel } from '@jupyterlab/notebook';
import { ServerConnection } from '@jupyterlab/services';
import type { Kernel } from '@jupyterlab/services';
import { Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';

import { hasEnded, Records } from './journal';
import type { IJournal, IRecord } from './journal';
import { execution } from './messageIds';
import type { MessageIds } from './messageIds';
import { askedOf, cellOf, codeCells, isLive, showRunning, update, viewOfCell } from './page';
import type { Trust } from './page';
import { Playback } from './playback';
import { isBehind } from './rule';

const SHORTEST_INTERVAL = 1000;
const LONGEST_INTERVAL = 30000;
/** After how many 404 responses a kernel counts as one without a journal. */
const UNKNOWN_AT_MOST = 5;

export class Restorer {
  constructor(options: Restorer.IOptions) {
    this._options = options;
    this._poll = new Poll<void>({
      auto: false,
      name: 'jupyter-gpu-kernel:journal',
      factory: () => this._ask(),
      frequency: { interval: SHORTEST_INTERVAL, backoff: true, max: LONGEST_INTERVAL },
      standby: 'never'
    });
    const { sessionContext } = options.panel;
    sessionContext.kernelChanged.connect(this._begin, this);
    sessionContext.connectionStatusChanged.connect(this._begin, this);
    sessionContext.statusChanged.connect(this._onStatus, this);
    NotebookActions.outputCleared.connect(this._onCleared, this);
    options.panel.disposed.connect(this.dispose, this);
    this._begin();
  }

  dispose(): void {
    this._poll.dispose();
    Signal.clearData(this);
  }

  private get _kernel(): Kernel.IKernelConnection | null {
    return this._options.panel.sessionContext.session?.kernel ?? null;
  }

  /** Starts requests, if the notebook is connected to one of our kernels. */
  private _begin(): void {
    this._end();
    this._kernel?.anyMessage.connect(this._onMessage, this);
    if (this._kernel?.connectionStatus === 'connected' && this._options.isOurs(this._kernel)) {
      this._records = new Records();
      this._playback = newPlayback();
      [this._unknown, this._begun] = [0, Date.now()];
      void this._poll.refresh();
    }
  }

  /** Stops requests, and the display of running cells. */
  private _end(): void {
    this._turn++;
    [...this._filling.keys()].forEach(cellId => this._leave(cellId));
    void this._poll.stop();
  }

  private _leave(cellId: string): void {
    const cell = cellOf(this._options.panel, cellId);
    if (this._filling.delete(cellId) && cell && !isLive(cell)) {
      showRunning(cell, false);
    }
  }

  /** Remembers the executions by this page, whose restored outputs are trusted. */
  private _onMessage(_: unknown, { msg, direction }: Kernel.IAnyMessageArgs): void {
    if (direction === 'send' && msg.header.msg_type === 'execute_request') {
      this._options.executed.add(execution(String(msg.metadata.cellId), msg.header.msg_id));
    }
  }

  private _onStatus(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting') {
      codeCells(this._options.panel)
        .filter(cell => (isLive(cell) || this._filling.has(cell.model.id)) && cell.model.executionCount === null)
        .forEach(cell => this._dismiss(cell));
    }
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      this._end();
    }
  }

  private _onCleared(_: unknown, { notebook, cell }: { notebook: Notebook; cell: Cell }): void {
    if (notebook === this._options.panel.content && cell.model.type === 'code') {
      this._dismiss(cell as CodeCell);
    }
  }

  /** The user has discarded the outputs of the cell's last execution. */
  private _dismiss(cell: CodeCell): void {
    const msgId = askedOf(cell) ?? this._records.of(cell.model.id)?.msg_id;
    if (msgId !== undefined) {
      this._options.dismissed.add(msgId);
    }
    this._leave(cell.model.id);
  }

  /** Requests the whole journal first, and then the records of unfinished cells, the oldest one first. */
  private async _ask(): Promise<void> {
    const [turn, kernel] = [this._turn, this._kernel];
    if (!kernel) {
      return void this._poll.stop();
    }
    let asked: string | undefined;
    let begun: number;
    do {
      [asked, begun] = [this._next, Date.now()];
      const journal = await this._fetch(kernel.id, asked ?? '');
      if (turn !== this._turn || this._poll.isDisposed) {
        return; // the connection has changed, or is closed
      }
      this._take(journal.cells, asked);
    } while (asked !== undefined && this._next !== undefined && asked !== this._next);
    if (this._next === undefined) {
      return void this._poll.stop();
    }
    this._slowDown(Date.now() - begun);
  }

  private async _fetch(kernelId: string, cellId: string): Promise<IJournal> {
    try {
      return await this._options.fetch(kernelId, cellId);
    } catch (error) {
      console.debug('jupyter-gpu-kernel: no journal yet', error);
      const unknown = error instanceof ServerConnection.ResponseError && error.response.status === 404;
      if (unknown && ++this._unknown >= UNKNOWN_AT_MOST) {
        this._end();
      }
      throw error; // so that the poll slows down
    }
  }

  /** The oldest unfinished cell. */
  private get _next(): string | undefined {
    return this._filling.keys().next().value;
  }

  /** Requests are less frequent if they take long, or if the cell runs for long. */
  private _slowDown(took: number): void {
    const waited = Date.now() - this._begun;
    const interval = Math.max(SHORTEST_INTERVAL, Math.min(waited / 60, 5 * SHORTEST_INTERVAL), 5 * took);
    this._poll.frequency = { ...this._poll.frequency, interval: Math.min(interval, LONGEST_INTERVAL) };
  }

  private _take(fetched: readonly IRecord[], asked: string | undefined): void {
    if (asked !== undefined && !fetched.some(record => record.cell_id === asked)) {
      this._leave(asked); // its record no longer exists
    }
    this._records.add(fetched);
    const changed = new Set(fetched.flatMap(record => [...this._playback.play(record)]));
    for (const msgId of changed) {
      const record = this._records.get(msgId);
      if (record && this._records.of(record.cell_id) === record) {
        this._restore(record);
      }
    }
  }

  private _restore(record: IRecord): void {
    const { panel } = this._options;
    const cell = cellOf(panel, record.cell_id);
    const outputs = this._playback.outputsOf(record.msg_id);
    if (!cell || !this._mayFill(cell, record, () => isBehind(viewOfCell(panel, cell), record, outputs))) {
      this._filling.delete(record.cell_id);
      return;
    }
    update(cell, record, outputs, this._trustOf(record));
    if (hasEnded(record)) {
      this._filling.delete(record.cell_id);
    } else {
      this._filling.set(record.cell_id, record.msg_id);
    }
  }

  private _mayFill(cell: CodeCell, record: IRecord, isBehind: () => boolean): boolean {
    if (this._filling.get(record.cell_id) === record.msg_id) {
      return !isLive(cell);
    }
    return !this._options.dismissed.has(record.msg_id) && isBehind();
  }

  /** Only executions by this page are trusted: a node can forge the record of any other cell. */
  private _trustOf(record: IRecord): Trust {
    if (this._options.executed.has(execution(record.cell_id, record.msg_id))) {
      return 'trusted';
    }
    return this._filling.get(record.cell_id) === record.msg_id ? 'unchanged' : 'untrusted';
  }

  private readonly _options: Restorer.IOptions;
  private readonly _poll: Poll<void>;
  private _records = new Records();
  private _playback = newPlayback();
  /** Unfinished cells that are restored, oldest first: cell id → msg_id. */
  private readonly _filling = new Map<string, string>();
  /** Increases when responses to earlier requests become invalid. */
  private _turn = 0;
  private _unknown = 0;
  private _begun = 0;
}

function newPlayback(): Playback {
  return new Playback(() => CodeCellModel.defaultContentFactory.createOutputArea({}));
}

export namespace Restorer {
  export interface IOptions {
    /** The panel, whose notebook is loaded. */
    readonly panel: NotebookPanel;
    readonly isOurs: (kernel: Kernel.IKernelConnection) => boolean;
    /** Fetches the journal of a kernel, for one cell or, with '', for all. */
    readonly fetch: (kernelId: string, cellId: string) => Promise<IJournal>;
    /** Executions whose outputs the user has discarded: by clearing them, or by a restart of the kernel. */
    readonly dismissed: MessageIds;
    /** Executions by this browser tab (see `execution`). */
    readonly executed: MessageIds;
  }
}
