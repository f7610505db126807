/**
 * Kernels that another program, such as VS Code, starts, and that wait until their user signs in here.
 */
// The imports have a suffix, for Node's test runner.
import { Refresher } from '../refresher.js';
import { line, listOf, recordOf } from '../untrusted.js';

const LONGEST_NAME = 120;
const MOST = 20;

export interface IWaitingStart {
  readonly id: string;
  /** The kernelspec's name. */
  readonly name: string;
  /** The machine that asks for the sign-in. */
  readonly node: string;
  /** The notebook's file name; '' if it is not known. */
  readonly notebook: string;
}

/** What waits, in the server's response; what is none is left out. */
export function parseStarts(response: unknown): IWaitingStart[] {
  const starts = listOf(response)
    .map(recordOf)
    .map(({ id, name, node, notebook }) => ({
      id: String(id),
      name: line(name, LONGEST_NAME),
      node: line(node, LONGEST_NAME),
      notebook: line(notebook, LONGEST_NAME)
    }));
  return starts.filter(({ id, name }) => /^[0-9a-f]{32}$/.test(id) && name !== '').slice(0, MOST);
}

/** Shows each of them as long as it waits. */
export class WaitingStarts {
  constructor(options: WaitingStarts.IOptions) {
    this._options = options;
    this._refresher = new Refresher(options.fetch, fetched => this._update(fetched));
  }

  /** Fetches them, and shows what is new. Never rejects. */
  refresh(): Promise<void> {
    return this._refresher.refresh();
  }

  private _update(starts: readonly IWaitingStart[]): void {
    for (const [id, withdraw] of [...this._shown]) {
      if (!starts.some(start => start.id === id)) {
        this._shown.delete(id);
        withdraw();
      }
    }
    for (const start of starts) {
      if (!this._shown.has(start.id)) {
        this._shown.set(start.id, this._options.tell(start));
      }
    }
  }

  private readonly _options: WaitingStarts.IOptions;
  /** Functions that close what is shown, by id. */
  private readonly _shown = new Map<string, () => void>();
  private readonly _refresher: Refresher<readonly IWaitingStart[]>;
}

export namespace WaitingStarts {
  export interface IOptions {
    readonly fetch: () => Promise<readonly IWaitingStart[]>;
    /** Shows that a kernel waits. Returns a function that closes it. */
    readonly tell: (start: IWaitingStart) => () => void;
  }
}
