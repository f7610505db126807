/**
 * Restores the outputs that the page of one notebook has missed. It requests the journal at every (re)connection
 * to a kernel, and repeatedly while a cell runs.
 *
 * `rule.ts` decides which cells change, `pages.ts` which page changes them, and `journalPoll.ts` when requests are made.
 */
import { CodeCellModel } from '@jupyterlab/cells';
import type { Cell, CodeCell } from '@jupyterlab/cells';
import type { IOutput } from '@jupyterlab/nbformat';
import { NotebookActions } from '@jupyterlab/notebook';
import type { Notebook, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { JSONExt } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';

import { identify } from './identify';
import { hasEnded, Records } from './journal';
import type { IJournal, IRecord } from './journal';
import { JournalPoll } from './journalPoll';
import type { IJournalSource } from './journalPoll';
import { execution } from './messageIds';
import type { MessageIds } from './messageIds';
import { askedOf, cellOf, codeCells, distrust, giveUp, isLive, isShared, showQuestion, showRunning, update, viewOfCell } from './page';
import type { Trust } from './page';
import { Pages } from './pages';
import { Playback } from './playback';
import { RanCells } from './ranCells';
import { OwnRequests } from './requests';
import { begins, hasGap, isBehind } from './rule';

export class Restorer {
  constructor(options: Restorer.IOptions) {
    this._options = options;
    const { sessionContext, model } = options.panel.context;
    this._pages = new Pages(model.sharedModel.awareness, () => this._refresh());
    this._requests = new OwnRequests((msgId, pending) => this._pages.receive(msgId, pending));
    this._ran = new RanCells(options.hasRun);
    sessionContext.kernelChanged.connect(this._onKernel, this);
    sessionContext.connectionStatusChanged.connect(this._begin, this);
    sessionContext.statusChanged.connect(this._onStatus, this);
    NotebookActions.outputCleared.connect(this._onCleared, this);
    NotebookActions.executionScheduled.connect(this._onScheduled, this);
    options.panel.disposed.connect(this.dispose, this);
    window.addEventListener('pagehide', this._onHide);
    this._begin();
  }

  dispose(): void {
    this._poll?.dispose();
    this._onHide();
    window.removeEventListener('pagehide', this._onHide);
    Signal.clearData(this);
  }

  /** The page is closed or loaded anew. */
  private readonly _onHide = (): void => this._pages.dispose();

  private get _kernel(): Kernel.IKernelConnection | null {
    return this._options.panel.sessionContext.session?.kernel ?? null;
  }

  /** The kernel, if the page is connected to it, and it is one of ours. */
  private get _connected(): Kernel.IKernelConnection | null {
    const kernel = this._kernel;
    return kernel?.connectionStatus === 'connected' && this._options.isOurs(kernel) ? kernel : null;
  }

  private _onKernel(): void {
    this._ran.reset();
    this._begin();
  }

  /** Starts requests, if the notebook is connected to one of our kernels. */
  private _begin(): void {
    this._end();
    this._kernel?.anyMessage.connect(this._onMessage, this);
    if (this._connected) {
      this._records = new Records();
      this._ran.setKernel('');
      this._playback = newPlayback();
      this._refresh();
    }
  }

  /** Requests the whole journal anew, since cells may have to be restored here now. */
  private _refresh(): void {
    const { panel, source } = this._options;
    const kernel = this._connected;
    if (!kernel) {
      return;
    }
    this._poll?.dispose();
    [...this._filling.keys()].forEach(cellId => this._stop(cellId));
    this._poll = new JournalPoll({
      source,
      kernelId: kernel.id,
      ready: isShared(panel) ? this._pages.known : undefined,
      next: () => this._next,
      take: (journal, asked) => this._take(journal, asked),
      onNotFound: () => this._end()
    });
  }

  /** Stops requests, and the display of running cells. */
  private _end(): void {
    this._poll?.dispose();
    [...this._filling.keys()].forEach(cellId => this._leave(cellId));
  }

  private _leave(cellId: string): void {
    const cell = cellOf(this._options.panel, cellId);
    if (this._stop(cellId) && cell && !isLive(cell)) {
      showRunning(cell, false);
    }
  }

  private _stop(cellId: string): boolean {
    const msgId = this._filling.get(cellId) ?? '';
    const cell = cellOf(this._options.panel, cellId);
    if (cell) {
      showQuestion(cell, '');
    }
    this._pages.release(msgId);
    this._checks.delete(msgId);
    return this._filling.delete(cellId);
  }

  /** Remembers the executions by this page, whose restored outputs are trusted. */
  private _onMessage(_: unknown, { msg, direction }: Kernel.IAnyMessageArgs): void {
    if (direction !== 'send') {
      this._requests.received(msg);
      this._onMoved(movedBy(msg));
    } else if (msg.header.msg_type === 'execute_request' && msg.metadata.cellId !== undefined) {
      this._trust(String(msg.metadata.cellId), msg.header.msg_id);
      this._requests.sent(msg);
    }
  }

  /** An `Output` widget shows the outputs of an execution from now on. Those of earlier executions are forgotten. */
  private _onMoved(msgId: string): void {
    if (msgId !== '') {
      const asked = new Set(codeCells(this._options.panel).map(askedOf));
      const isNeeded = (id: string): boolean => this._requests.has(id) || asked.has(id);
      this._moved = new Set([...this._moved, msgId].filter(isNeeded));
    }
  }

  /** JupyterLab trusts the cell that is executed, before it sends the request. */
  private _trust(cellId: string, msgId: string): void {
    if (!this._options.trustsNone() || !this._kernel || !this._options.isOurs(this._kernel)) {
      return this._options.executed.add(execution(cellId, msgId));
    }
    const cell = cellOf(this._options.panel, cellId);
    if (cell) {
      distrust(cell.model);
    }
  }

  private _onStatus(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting') {
      codeCells(this._options.panel)
        .filter(cell => (isLive(cell) || this._filling.has(cell.model.id)) && cell.model.executionCount === null)
        .forEach(cell => this._dismiss(cell));
    }
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      this._requests.clear();
      this._end();
    }
  }

  /** Also where the server executes the cell, and the page sends no request to the kernel. */
  private _onScheduled(_: unknown, { notebook, cell }: { notebook: Notebook; cell: Cell }): void {
    if (notebook === this._options.panel.content) {
      this._ran.add(cell.model.id);
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

  /** The oldest unfinished cell that is restored: its id, or that of its request if the journal has no other. */
  private get _next(): string | undefined {
    const msgId = this._filling.values().next().value;
    return msgId === undefined ? undefined : this._records.get(msgId)?.cell_id || msgId;
  }

  private _take({ kernel, cells: fetched }: IJournal, asked: string | undefined): void {
    this._ran.setKernel(kernel);
    if (asked !== undefined && !fetched.some(record => [record.cell_id, record.msg_id].includes(asked))) {
      const cells = [...this._filling].filter(([cellId, msgId]) => [cellId, msgId].includes(asked));
      cells.forEach(([cellId]) => this._leave(cellId)); // its record no longer exists
    }
    this._records.add(fetched);
    const changed = new Set(fetched.flatMap(record => [...this._playback.play(record)]));
    if (asked === undefined) {
      this._identify();
    }
    for (const msgId of changed) {
      const record = this._records.get(msgId);
      const cellId = record && this._records.cellOf(record);
      if (cellId && this._records.of(cellId) === record) {
        this._restore(record, cellId);
      }
    }
  }

  /** Finds the cells of records without the id of a cell. */
  private _identify(): void {
    const { panel, dismissed, onDoubt } = this._options;
    const shared = isShared(panel);
    const { cells, doubtful } = identify(
      this._records.all,
      new Map(codeCells(panel).map(cell => [cell.model.id, viewOfCell(panel, cell)])),
      record => this._playback.outputsOf(record.msg_id),
      cellId => this._ran.has(cellId),
      record => record.left || !shared // else the server writes them into the shared notebook
    );
    cells.forEach((cellId, msgId) => this._records.identify(msgId, cellId));
    const news = doubtful.filter(record => !dismissed.has(record.msg_id));
    news.forEach(record => dismissed.add(record.msg_id));
    if (news.length) {
      onDoubt(news);
    }
  }

  private _restore(record: IRecord, cellId: string): void {
    const { panel } = this._options;
    const cell = cellOf(panel, cellId);
    const outputs = this._playback.outputsOf(record.msg_id);
    const isBehindRecord = (): boolean => isBehind(viewOfCell(panel, cell!), record, outputs);
    if (!cell || !this._mayFill(cell, record, isBehindRecord) || !this._pages.claim(record.msg_id)) {
      return void this._stop(cellId);
    }
    if (isLive(cell)) {
      this._filling.set(cellId, record.msg_id);
      return this._check(cell, record, outputs);
    }
    const isOwn = askedOf(cell) === record.msg_id;
    if (!hasEnded(record) && isOwn && cell.model.executionCount !== null) {
      return void this._filling.set(cellId, record.msg_id); // it has ended since the journal was written: request that
    }
    if (isOwn && this._isPart(record) && cell.model.outputs.length) {
      return void this._stop(cellId);
    }
    update(cell, record, outputs, this._trustOf(record, cellId), isShared(panel));
    this._filling.set(cellId, record.msg_id);
    if (hasEnded(record)) {
      this._stop(cellId);
    }
  }

  private _mayFill(cell: CodeCell, record: IRecord, isBehind: () => boolean): boolean {
    const isAsked = isLive(cell) && askedOf(cell) === record.msg_id;
    if (this._filling.get(cell.model.id) === record.msg_id) {
      return isAsked || !isLive(cell);
    }
    return !this._options.dismissed.has(record.msg_id) && (isAsked || isBehind());
  }

  /**
   * Checks a cell that receives its messages. Messages that were sent when the page was connected again may still
   * arrive until the second check.
   */
  private _check(cell: CodeCell, record: IRecord, outputs: readonly IOutput[]): void {
    const shown = cell.model.outputs.toJSON();
    const earlier = this._checks.get(record.msg_id);
    const gap = !hasEnded(record) && !this._isPart(record) && hasGap(shown, outputs);
    this._checks.set(record.msg_id, { shown, hadGap: gap || earlier?.hadGap === true });
    if (earlier === undefined) {
      return;
    }
    if (gap) {
      update(cell, record, outputs, 'unchanged', isShared(this._options.panel));
    } else if (hasEnded(record)) {
      if (JSONExt.deepEqual(earlier.shown, shown)) {
        giveUp(cell); // its last messages are lost
      }
    } else if (this._isPart(record) || (!earlier.hadGap && begins(outputs, shown))) {
      this._stop(cell.model.id); // nothing was missed, or it is not known
    }
  }

  /** Whether the outputs of a record may differ from those of a cell that has received all messages. */
  private _isPart(record: IRecord): boolean {
    return record.dropped || this._moved.has(record.msg_id);
  }

  /**
   * Only executions by this page are trusted, since a node can forge the record of any other cell; and none while the
   * user trusts no output of remote kernels, also if the execution was before that.
   */
  private _trustOf(record: IRecord, cellId: string): Trust {
    if (!this._options.trustsNone() && this._options.executed.has(execution(cellId, record.msg_id))) {
      return 'trusted';
    }
    return this._filling.get(cellId) === record.msg_id ? 'unchanged' : 'untrusted';
  }

  private readonly _options: Restorer.IOptions;
  private _poll: JournalPoll | null = null;
  private readonly _pages: Pages;
  private readonly _requests: OwnRequests;
  private readonly _ran: RanCells;
  private _records = new Records();
  private _playback = newPlayback();
  /** Unfinished cells that are restored, oldest first: cell id → msg_id. */
  private readonly _filling = new Map<string, string>();
  /** The checks of cells that receive their messages: msg_id → what the cell showed, and whether it had a gap. */
  private readonly _checks = new Map<string, { readonly shown: IOutput[]; readonly hadGap: boolean }>();
  /** Executions by this page whose outputs were shown by `Output` widgets: the last one of each cell. */
  private _moved: ReadonlySet<string> = new Set();
}

/** The msg_id of the execution whose outputs an `Output` widget shows from now on, or ''. */
function movedBy(msg: KernelMessage.IMessage): string {
  const { data } = msg.content as { data?: { state?: { msg_id?: unknown } } };
  return String((msg.header.msg_type === 'comm_msg' && data?.state?.msg_id) || '');
}

function newPlayback(): Playback {
  return new Playback(() => CodeCellModel.defaultContentFactory.createOutputArea({}));
}

export namespace Restorer {
  export interface IOptions {
    /** The panel, whose notebook is loaded. */
    readonly panel: NotebookPanel;
    readonly isOurs: (kernel: Kernel.IKernelConnection) => boolean;
    readonly source: IJournalSource;
    /** Executions whose outputs the user has discarded: by clearing them, or by a restart of the kernel. */
    readonly dismissed: MessageIds;
    /** Whether the user trusts no output of remote kernels, also of cells that this page executes. */
    readonly trustsNone: () => boolean;
    /** Executions by this browser tab (see `execution`). */
    readonly executed: MessageIds;
    /** “kernel cell” of the cells that this browser has run, whoever sent the request. */
    readonly hasRun: MessageIds;
    /** Tells the user, once, of executions whose cell is not known beyond doubt. */
    readonly onDoubt: (records: readonly IRecord[]) => void;
  }
}
