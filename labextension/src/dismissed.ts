/**
 * Remembers across reloads of the page which executions the user wants no more of: cleared from the notebook, or
 * ended by a restart of the kernel.
 */
const KEY = 'jupyter-gpu-kernel:dismissed';
const MOST = 500;

export class Dismissed {
  constructor(storage: Pick<Storage, 'getItem' | 'setItem'>) {
    this._storage = storage;
  }

  add(msgId: string): void {
    const all = this._all().filter(each => each !== msgId);
    this._storage.setItem(KEY, JSON.stringify([...all, msgId].slice(-MOST)));
  }

  has(msgId: string): boolean {
    return this._all().includes(msgId);
  }

  private _all(): string[] {
    const stored: unknown = JSON.parse(this._storage.getItem(KEY) ?? '[]');
    return Array.isArray(stored) ? stored.map(String) : [];
  }

  private readonly _storage: Pick<Storage, 'getItem' | 'setItem'>;
}
