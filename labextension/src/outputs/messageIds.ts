/**
 * A set of message ids that outlives a reload of the page: the most recent ones, in the browser's storage.
 */
// The import has a suffix, for Node's test runner.
import { listOf } from '../untrusted.js';

const LIMIT = 500;

export class MessageIds {
  /** `key`: the key of the ids in the storage. */
  constructor(storage: Pick<Storage, 'getItem' | 'setItem'>, key: string) {
    this._storage = storage;
    this._key = key;
  }

  add(id: string): void {
    const others = this._all().filter(each => each !== id);
    this._storage.setItem(this._key, JSON.stringify([...others, id].slice(-LIMIT)));
  }

  has(id: string): boolean {
    return this._all().includes(id);
  }

  private _all(): string[] {
    try {
      return listOf(JSON.parse(this._storage.getItem(this._key) ?? '[]')).map(String);
    } catch {
      return []; // another program wrote to this key
    }
  }

  private readonly _storage: Pick<Storage, 'getItem' | 'setItem'>;
  private readonly _key: string;
}

/** An execution by this page: a kernel cannot forge the execution of a cell that the user did not run. */
export function execution(cellId: string, msgId: string): string {
  return `${cellId} ${msgId}`;
}
