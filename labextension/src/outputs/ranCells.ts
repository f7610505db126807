/**
 * The cells that this browser has run in the kernel of a notebook, whoever sent the request: the page, or its server.
 */
import type { MessageIds } from './messageIds';

export class RanCells {
  /** `stored`: “kernel cell”. */
  constructor(stored: Pick<MessageIds, 'add' | 'has'>) {
    this._stored = stored;
  }

  add(cellId: string): void {
    this._latest.add(cellId);
    this._store();
  }

  has(cellId: string): boolean {
    return this._stored.has(`${this._kernel} ${cellId}`);
  }

  /** JUPYTER_GPU_KERNEL_ID of the kernel; '' until it is known again. A cell may be run before. */
  setKernel(id: string): void {
    this._kernel = id;
    this._store();
  }

  /** The notebook has another kernel, in which no cell was run yet. */
  reset(): void {
    this._kernel = '';
    this._latest.clear();
  }

  private _store(): void {
    if (this._kernel) {
      this._latest.forEach(cellId => this._stored.add(`${this._kernel} ${cellId}`));
      this._latest.clear();
    }
  }

  private readonly _stored: Pick<MessageIds, 'add' | 'has'>;
  private _kernel = '';
  /** Run while the kernel's id was not known. */
  private readonly _latest = new Set<string>();
}
