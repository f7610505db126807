/**
 * Brings into one notebook the outputs that its page has missed: at every (re)connection to a kernel it asks for
 * the journal, and again for what still runs.
 *
 * What is to be changed says `rule.ts`. Nothing here is the user's business: what fails is tried again, silently.
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
import { askedOf, bring, cellOf, codeCells, isLive, showRunning, viewOfCell } from './page';
import type { Trust } from './page';
import { Playback } from './playback';
import { isBehind } from './rule';

const SHORTEST_INTERVAL = 1000;
const LONGEST_INTERVAL = 30000;
/** How often a kernel may be unknown before it is taken for one that has no journal. */
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

  /** Asks anew, if there is a connection to one of our kernels. */
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

  /** Nothing is brought any more; who runs is no longer said by us. */
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

  /** Remembers what the user executes in this page, whose outputs are trusted when they are restored. */
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

  /** The user wants nothing more of what the cell did last. */
  private _dismiss(cell: CodeCell): void {
    const msgId = askedOf(cell) ?? this._records.of(cell.model.id)?.msg_id;
    if (msgId !== undefined) {
      this._options.dismissed.add(msgId);
    }
    this._leave(cell.model.id);
  }

  /** All of the journal at first, then what it says of the oldest cell that is not at its end, and of the next. */
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
        return; // the connection is another, or gone
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
      throw error; // the poll slows down
    }
  }

  /** The oldest cell that is not at its end. */
  private get _next(): string | undefined {
    return this._filling.keys().next().value;
  }

  /** What takes long to fetch, and what runs for long, is asked for less often. */
  private _slowDown(took: number): void {
    const waited = Date.now() - this._begun;
    const interval = Math.max(SHORTEST_INTERVAL, Math.min(waited / 60, 5 * SHORTEST_INTERVAL), 5 * took);
    this._poll.frequency = { ...this._poll.frequency, interval: Math.min(interval, LONGEST_INTERVAL) };
  }

  private _take(fetched: readonly IRecord[], asked: string | undefined): void {
    if (asked !== undefined && !fetched.some(record => record.cell_id === asked)) {
      this._leave(asked); // its record is gone
    }
    this._records.add(fetched);
    const changed = new Set(fetched.flatMap(record => [...this._playback.play(record)]));
    for (const msgId of changed) {
      const record = this._records.get(msgId);
      if (record && this._records.of(record.cell_id) === record) {
        this._bring(record);
      }
    }
  }

  private _bring(record: IRecord): void {
    const { panel } = this._options;
    const cell = cellOf(panel, record.cell_id);
    const outputs = this._playback.outputsOf(record.msg_id);
    if (!cell || !this._mayFill(cell, record, () => isBehind(viewOfCell(panel, cell), record, outputs))) {
      this._filling.delete(record.cell_id);
      return;
    }
    bring(cell, record, outputs, this._trustOf(record));
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

  /** Trust is the user's: what a node says of a cell that was not executed here may be anything. */
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
  /** Cells that are not at their end yet, oldest first: cell id → msg_id. */
  private readonly _filling = new Map<string, string>();
  /** Grows whenever what was asked before no longer counts. */
  private _turn = 0;
  private _unknown = 0;
  private _begun = 0;
}

function newPlayback(): Playback {
  return new Playback(() => CodeCellModel.defaultContentFactory.createOutputArea({}));
}

export namespace Restorer {
  export interface IOptions {
    /** Its notebook is loaded. */
    readonly panel: NotebookPanel;
    readonly isOurs: (kernel: Kernel.IKernelConnection) => boolean;
    /** The journal of a kernel; of one cell, or with '' of all. */
    readonly fetch: (kernelId: string, cellId: string) => Promise<IJournal>;
    /** Executions whose outputs the user wants no more of: cleared, or ended by a restart of the kernel. */
    readonly dismissed: MessageIds;
    /** What this browser tab has executed (see `execution`). */
    readonly executed: MessageIds;
  }
}
