/**
 * Decides whether the user learns that a cell has ended. No page, no network.
 */
import type { MessageIds } from '../outputs/messageIds';
import type { IEnded } from './runs';

export interface IAnnouncement {
  /** The notebook's name. */
  readonly notebook: string;
  readonly ok: boolean;
  readonly seconds: number;
}

export class Announcer {
  constructor(options: Announcer.IOptions) {
    this._options = options;
  }

  /** A cell has begun in a notebook of this browser. */
  begun(msgId: string): void {
    if (this._options.settings().enabled) {
      this._options.begun.add(msgId);
    }
  }

  /** A cell has ended while the page was open. */
  ended(notebook: string, ended: IEnded): void {
    if (this._isNews(ended)) {
      this._options.reported.add(ended.msgId);
      if (this._options.isHidden()) {
        this._options.tell({ notebook, ok: ended.ok, seconds: ended.seconds });
      }
    }
  }

  /** The notebook is open again: the cell that this browser saw begin has ended meanwhile. */
  endedBefore(notebook: string, ended: IEnded): void {
    if (this._options.begun.has(ended.msgId) && this._isNews(ended)) {
      this._options.reported.add(ended.msgId);
      this._options.tell({ notebook, ok: ended.ok, seconds: ended.seconds });
    }
  }

  /** Each execution is reported once, also if several tabs show it. */
  private _isNews({ msgId, seconds }: IEnded): boolean {
    const { enabled, seconds: long } = this._options.settings();
    return enabled && seconds >= long && !this._options.reported.has(msgId);
  }

  private readonly _options: Announcer.IOptions;
}

export namespace Announcer {
  export interface IOptions {
    readonly settings: () => { readonly enabled: boolean; readonly seconds: number };
    readonly isHidden: () => boolean;
    readonly tell: (announcement: IAnnouncement) => void;
    /** Executions that this browser has seen begin, and those that were reported; they outlive the page. */
    readonly begun: MessageIds;
    readonly reported: MessageIds;
  }
}
