/**
 * Which nodes the user has collapsed, remembered for the next page.
 */
import type { IStateDB } from '@jupyterlab/statedb';
import { Signal } from '@lumino/signaling';

const KEY = 'jupyter-gpu-kernel:collapsed-nodes';
const MOST = 500;

export class CollapsedNodes {
  /** `state`: where it is stored; null: for this page only. */
  constructor(state: Pick<IStateDB, 'fetch' | 'save'> | null) {
    this._state = state;
    void state?.fetch(KEY).then(stored => this._restore(stored));
  }

  readonly changed = new Signal<this, void>(this);

  has(node: string): boolean {
    return this._names.has(node);
  }

  toggle(node: string): void {
    if (!this._names.delete(node)) {
      this._names.add(node);
    }
    this.changed.emit();
    void this._state?.save(KEY, [...this._names].slice(-MOST));
  }

  private _restore(stored: unknown): void {
    if (Array.isArray(stored)) {
      stored.filter(each => typeof each === 'string').forEach(each => this._names.add(each));
      this.changed.emit();
    }
  }

  private readonly _state: Pick<IStateDB, 'fetch' | 'save'> | null;
  private readonly _names = new Set<string>();
}
