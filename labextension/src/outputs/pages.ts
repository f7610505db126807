/**
 * The other pages that show the same notebook, where it is shared, as with jupyter-collaboration: what one of them
 * writes into a cell, all have. So only one may restore the outputs of an execution, and none while a page receives
 * them. Each page tells the others by the notebook's awareness. This module knows no cells.
 */
// The import has a suffix, for Node's test runner.
import { listOf } from '../untrusted.js';

const FIELD = 'jupyterGpuKernel';
/** Milliseconds in which the other pages answer a new one. */
const ANSWER_TIME = 1000;

/** What a page tells the others: msg_ids of executions. */
interface IPage {
  /** It receives their messages from the kernel. */
  readonly receives: readonly string[];
  /** It restores their outputs. */
  readonly restores: readonly string[];
}

type State = { [key: string]: unknown };
type Change = { added: number[]; updated: number[]; removed: number[] };

/** The part of y-protocols' `Awareness` that is used here. */
export interface IAwareness {
  readonly clientID: number;
  getStates(): Map<number, State>;
  setLocalStateField(field: string, value: unknown): void;
  on(event: 'change', listener: (change: Change) => void): void;
  off(event: 'change', listener: (change: Change) => void): void;
}

export class Pages {
  /** `onLeft`: a page has left that received or restored outputs. */
  constructor(awareness: IAwareness, onLeft: () => void) {
    this._awareness = awareness;
    this._onLeft = onLeft;
    this.known = new Promise(resolve => setTimeout(resolve, ANSWER_TIME));
    this._remember();
    awareness.on('change', this._onChange);
    this._tell();
  }

  /** Resolves when the other pages have announced what they do. */
  readonly known: Promise<void>;

  /** The page leaves. If it does not say so, the others notice it half a minute later. */
  dispose(): void {
    this._awareness.off('change', this._onChange);
    this._awareness.setLocalStateField(FIELD, null);
  }

  /** This page begins or ends to receive the messages of this execution. */
  receive(msgId: string, begins: boolean): void {
    this._change(this._receives, msgId, begins);
  }

  /** Whether this page, and no other one, may restore the outputs of this execution, until it calls `release`. */
  claim(msgId: string): boolean {
    const others = [...this._others()];
    const rivals = others.filter(([, page]) => page.restores.includes(msgId)).map(([id]) => id);
    const yields = rivals.length > 0 && !(this._restores.has(msgId) && this._awareness.clientID < Math.min(...rivals));
    const mayRestore = !yields && !others.some(([, page]) => page.receives.includes(msgId));
    this._change(this._restores, msgId, mayRestore);
    return mayRestore;
  }

  release(msgId: string): void {
    this._change(this._restores, msgId, false);
  }

  private _change(ids: Set<string>, msgId: string, has: boolean): void {
    if (ids.has(msgId) !== has) {
      if (!ids.delete(msgId)) {
        ids.add(msgId);
      }
      this._tell();
    }
  }

  private _tell(): void {
    this._awareness.setLocalStateField(FIELD, { receives: [...this._receives], restores: [...this._restores] });
  }

  private readonly _onChange = ({ added }: Change): void => {
    const here = new Set([...this._others()].map(([id]) => id));
    const haveLeft = [...this._active].some(id => !here.has(id));
    this._remember();
    if (added.some(id => id !== this._awareness.clientID)) {
      this._tell(); // a new page knows nothing: servers pass on only what changes
    }
    if (haveLeft) {
      this._onLeft();
    }
  };

  private _remember(): void {
    const active = [...this._others()].filter(([, page]) => page.receives.length || page.restores.length);
    this._active = new Set(active.map(([id]) => id));
  }

  private *_others(): Iterable<[number, IPage]> {
    for (const [id, state] of this._awareness.getStates()) {
      const page = state[FIELD] as Partial<IPage> | null | undefined;
      if (id !== this._awareness.clientID && page) {
        yield [id, { receives: listOf(page.receives).map(String), restores: listOf(page.restores).map(String) }];
      }
    }
  }

  private readonly _awareness: IAwareness;
  private readonly _onLeft: () => void;
  private readonly _receives = new Set<string>();
  private readonly _restores = new Set<string>();
  /** The other pages that received or restored outputs at the last change. */
  private _active = new Set<number>();
}
