/**
 * Requests the journal of one kernel: as a whole first, and then the records of cells that have not ended, one cell
 * after the other, until there is none. Pure: no page.
 *
 * Failed requests are repeated without a message to the user.
 */
import { isNotFound } from '../request.js';
import type { IJournal } from './journal';

const SHORTEST_INTERVAL = 1000;
const LONGEST_INTERVAL = 30000;
/** After how many 404 responses a kernel counts as one without a journal. */
const NOT_FOUND_AT_MOST = 5;

/** Where journals come from. */
export interface IJournalSource {
  /** Whether the node of the kernel with this Jupyter kernel id can be asked now, as far as it is known. */
  mayAnswer(kernelId: string): boolean;
  /** The journal of that kernel: all of it or, with `cellId`, the executions of that cell. */
  fetch(kernelId: string, cellId: string): Promise<IJournal>;
}

export class JournalPoll {
  /** Begins at once. */
  constructor(options: JournalPoll.IOptions) {
    this._options = options;
    this._clock = options.clock ?? CLOCK;
    this._begun = this._clock.now();
    void this._run();
  }

  /** Ends the requests. A response that comes later is not used. */
  dispose(): void {
    this._isDisposed = true;
  }

  private async _run(): Promise<void> {
    await this._options.ready;
    while (!this._isDisposed) {
      await this._tryToAsk();
      await this._clock.wait(this._interval);
    }
  }

  private async _tryToAsk(): Promise<void> {
    const { source, kernelId, onNotFound } = this._options;
    if (!source.mayAnswer(kernelId)) {
      this._interval = SHORTEST_INTERVAL;
      return;
    }
    try {
      await this._ask();
    } catch (error) {
      console.debug('jupyter-gpu-kernel: no journal yet', error);
      if (!this._isDisposed && isNotFound(error) && ++this._notFound >= NOT_FOUND_AT_MOST) {
        this.dispose();
        onNotFound?.();
      }
      this._interval = Math.min(2 * this._interval, LONGEST_INTERVAL);
    }
  }

  /** Requests the journal, or the next cell's records; then those of further cells, unless the cell still runs. */
  private async _ask(): Promise<void> {
    const { source, kernelId, next, take } = this._options;
    let asked: string | undefined;
    let begun: number;
    do {
      [asked, begun] = [next(), this._clock.now()];
      const journal = await source.fetch(kernelId, asked ?? '');
      if (this._isDisposed) {
        return;
      }
      take(journal, asked);
    } while (asked !== undefined && next() !== undefined && asked !== next());
    if (next() === undefined) {
      this.dispose();
    }
    this._slowDown(this._clock.now() - begun);
  }

  /** Requests are less frequent if they take long, or if the cells run for long. */
  private _slowDown(took: number): void {
    const runsFor = this._clock.now() - this._begun;
    const interval = Math.max(SHORTEST_INTERVAL, Math.min(runsFor / 60, 5 * SHORTEST_INTERVAL), 5 * took);
    this._interval = Math.min(interval, LONGEST_INTERVAL);
  }

  private readonly _options: JournalPoll.IOptions;
  private readonly _clock: JournalPoll.IClock;
  private readonly _begun: number;
  /** Milliseconds until the next request. */
  private _interval = SHORTEST_INTERVAL;
  private _notFound = 0;
  private _isDisposed = false;
}

export namespace JournalPoll {
  /** Times are in milliseconds. */
  export interface IClock {
    now(): number;
    wait(time: number): Promise<void>;
  }

  export interface IOptions {
    readonly source: IJournalSource;
    /** Jupyter's id of the kernel. */
    readonly kernelId: string;
    /** Resolves when the first request may be made. */
    readonly ready?: Promise<void>;
    /** The cell whose records are requested next; undefined if there is none. */
    readonly next: () => string | undefined;
    /** Takes the whole journal, or the records of the cell `asked`. */
    readonly take: (journal: IJournal, asked: string | undefined) => void;
    /** The kernel has no journal: there are no more requests. */
    readonly onNotFound?: () => void;
    readonly clock?: IClock;
  }
}

const CLOCK: JournalPoll.IClock = {
  now: () => Date.now(),
  wait: time => new Promise(resolve => setTimeout(resolve, time))
};
