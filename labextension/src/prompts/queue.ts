/**
 * Shows the questions of the server one after the other, and closes one that was answered in another page.
 *
 * No answer is kept here: it goes from the dialog to the server.
 */
// The import has a suffix, for Node's test runner.
import { Refresher } from '../refresher.js';
import type { IPrompt } from './prompt';

/** What the user did: an answer, or null to cancel the question. */
export type Reply = { readonly answer: string; readonly save: boolean } | null;

/** A question on the screen. */
export interface IShown {
  /** Resolves to the user's reply; to undefined if it was closed by `close`. */
  readonly reply: Promise<Reply | undefined>;
  /** Which one it is of how many. */
  count(position: number, total: number): void;
  /** Takes it off the screen without a reply. */
  close(): void;
}

export class PromptQueue {
  constructor(options: PromptQueue.IOptions) {
    this._options = options;
    this._refresher = new Refresher(options.fetch, fetched => this._update(fetched));
  }

  /** Fetches the questions, and shows the first. Never rejects. */
  refresh(): Promise<void> {
    return this._refresher.refresh();
  }

  private _update(prompts: readonly IPrompt[]): void {
    const waiting = prompts.filter(prompt => !this._replied.has(prompt.id));
    const current = waiting.find(prompt => prompt.id === this._current?.id);
    this._replied = new Set([...this._replied].filter(id => prompts.some(prompt => prompt.id === id)));
    if (this._current && !current) {
      this._current.shown.close(); // answered elsewhere, or given up
      this._current = null;
    }
    const [next] = waiting;
    this._done = next ? this._done : 0;
    this._total = this._done + waiting.length;
    if (!this._current && next) {
      void this._show(next, '');
    }
    this._current?.shown.count(this._done + 1, this._total);
  }

  private async _show(prompt: IPrompt, problem: string): Promise<void> {
    const shown = this._options.show(prompt, problem);
    this._current = { id: prompt.id, shown };
    const reply = await shown.reply;
    if (reply === undefined || this._current?.shown !== shown) {
      return;
    }
    this._current = null;
    this._replied.add(prompt.id);
    this._done += 1;
    const rejected = await this._options.send(prompt, reply);
    if (rejected) {
      this._replied.delete(prompt.id);
      this._done -= 1;
      if (!this._current) {
        void this._show(prompt, rejected);
      }
    }
    await this.refresh();
  }

  private readonly _options: PromptQueue.IOptions;
  private _current: { readonly id: string; readonly shown: IShown } | null = null;
  /** Questions to which the user has replied, until the server has taken the reply. */
  private _replied = new Set<string>();
  /** Replies since the queue was last empty. */
  private _done = 0;
  private _total = 1;
  private readonly _refresher: Refresher<readonly IPrompt[]>;
}

export namespace PromptQueue {
  export interface IOptions {
    /** The questions that wait; rejects if the server does not tell. */
    readonly fetch: () => Promise<readonly IPrompt[]>;
    /** Puts a question on the screen. `problem`: why the last reply cannot be right, or ''. */
    readonly show: (prompt: IPrompt, problem: string) => IShown;
    /** Sends the reply. Resolves to why it cannot be right, if the question still waits; else to ''. Never rejects. */
    readonly send: (prompt: IPrompt, reply: Reply) => Promise<string>;
  }
}
