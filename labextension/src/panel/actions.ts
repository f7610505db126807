/**
 * What the user has asked for: which requests are under way, and which have failed. No page, no network.
 */
import { Signal } from '@lumino/signaling';

import type { IProblem } from '../tokens';

export class Actions {
  /** `problemOf`: what a failed request means. `refresh`: requests the new state. */
  constructor(problemOf: (error: unknown) => Promise<IProblem>, refresh: () => Promise<void>) {
    this._problemOf = problemOf;
    this._refresh = refresh;
  }

  /** Emitted when `pending` or `problem` has another answer. */
  readonly changed = new Signal<this, void>(this);

  /** What is being done to this kernel or node, for the user; '' if nothing is. */
  pending(key: string): string {
    return this._pending.get(key) ?? '';
  }

  /** Why the last action on it failed. */
  problem(key: string): IProblem | null {
    return this._problems.get(key) ?? null;
  }

  /** Forgets why it failed. */
  dismiss(key: string): void {
    if (this._problems.delete(key)) {
      this.changed.emit();
    }
  }

  /** Does one thing at a time to a kernel or node. Resolves when the new state is known; to whether it succeeded. */
  async run(key: string, text: string, action: () => Promise<unknown>): Promise<boolean> {
    if (this._pending.has(key)) {
      return false;
    }
    this._pending.set(key, text);
    this._problems.delete(key);
    this.changed.emit();
    try {
      await action();
    } catch (error) {
      this._problems.set(key, await this._problemOf(error));
    }
    await this._refresh();
    this._pending.delete(key);
    this.changed.emit();
    return !this._problems.has(key);
  }

  private readonly _problemOf: (error: unknown) => Promise<IProblem>;
  private readonly _refresh: () => Promise<void>;
  private readonly _pending = new Map<string, string>();
  private readonly _problems = new Map<string, IProblem>();
}
