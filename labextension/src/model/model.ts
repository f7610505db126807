/**
 * The shared poll: one request at a time for all plugins, and none while nobody watches or the page is hidden.
 */
import { DisposableDelegate } from '@lumino/disposable';
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';

import type { IRemoteKernel } from '../tokens';
import type { IOverview } from './overview';
import type { IModelProblem, IRemoteModel } from './tokens';

const KERNELS_INTERVAL = 5000;
const OVERVIEW_INTERVAL = 3000;
const LONGEST_INTERVAL = 60000;

export class RemoteModel implements IRemoteModel, IDisposable {
  constructor(options: RemoteModel.IOptions) {
    this._options = options;
    this._poll = new Poll<void>({
      name: 'jupyter-gpu-kernel:model',
      factory: () => this._update(),
      frequency: this._frequency(),
      linger: 0,
      standby: () => (this._isWatched ? 'when-hidden' : true)
    });
  }

  readonly changed = new Signal<this, void>(this);

  get kernels(): readonly IRemoteKernel[] {
    return this._kernels;
  }

  get overview(): IOverview | null {
    return this._overview;
  }

  get problem(): IModelProblem | null {
    return this._problem;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    this._poll.dispose();
    Signal.clearData(this);
  }

  watchKernels(useOf?: string): IDisposable {
    const watch = this._watch('kernels');
    if (useOf === undefined) {
      return watch;
    }
    const used = { id: useOf };
    this._used.add(used);
    return new DisposableDelegate(() => {
      this._used.delete(used);
      watch.dispose();
    });
  }

  watchOverview(): IDisposable {
    return this._watch('overview');
  }

  async refresh(): Promise<void> {
    if (!this._isWatched) {
      return;
    }
    if (this._inFlight) {
      await this._ticked(); // it may have been sent before what the caller has done
    }
    await this._poll.refresh();
    await this._ticked();
  }

  private async _ticked(): Promise<void> {
    await this._poll.tick.catch(() => undefined);
  }

  private _watch(what: keyof RemoteModel['_watchers']): IDisposable {
    this._watchers[what] += 1;
    this._adjust();
    return new DisposableDelegate(() => {
      this._watchers[what] -= 1;
      this._adjust();
    });
  }

  /** Requests at once what is watched now, and has not been. */
  private _adjust(): void {
    const watched = this._watchers.overview ? 'overview' : this._watchers.kernels ? 'kernels' : 'nothing';
    const changed = watched !== this._watched;
    this._watched = watched;
    if (changed && !this.isDisposed) {
      this._poll.frequency = this._frequency();
      void this.refresh();
    }
  }

  private get _isWatched(): boolean {
    return this._watched !== 'nothing' && this._problem?.kind !== 'missing' && !this.isDisposed;
  }

  private _frequency(): { interval: number; backoff: boolean; max: number } {
    const overview = this._watched === 'overview';
    const interval = this._options.interval ?? (overview ? OVERVIEW_INTERVAL : KERNELS_INTERVAL);
    return { interval, backoff: true, max: LONGEST_INTERVAL };
  }

  private async _update(): Promise<void> {
    this._inFlight = true;
    try {
      await (this._watched === 'overview' ? this._fetchOverview() : this._fetchKernels());
      this._problem = null;
    } catch (error) {
      this._problem = this._options.problemOf(error);
      throw error; // so that the poll slows down
    } finally {
      this._inFlight = false;
      if (!this.isDisposed) {
        this.changed.emit();
      }
    }
  }

  private async _fetchOverview(): Promise<void> {
    this._overview = await this._options.fetchOverview();
    this._kernels = this._overview.kernels;
  }

  private async _fetchKernels(): Promise<void> {
    this._kernels = await this._options.fetchKernels([...new Set([...this._used].map(({ id }) => id))]);
  }

  private readonly _options: RemoteModel.IOptions;
  private readonly _poll: Poll<void>;
  private readonly _watchers = { kernels: 0, overview: 0 };
  /** The kernels the use of whose GPUs is watched, once for each that watches. */
  private readonly _used = new Set<{ readonly id: string }>();
  private _watched: 'nothing' | 'kernels' | 'overview' = 'nothing';
  private _inFlight = false;
  private _kernels: readonly IRemoteKernel[] = [];
  private _overview: IOverview | null = null;
  private _problem: IModelProblem | null = null;
}

export namespace RemoteModel {
  export interface IOptions {
    /** `useOf`: Jupyter's ids of the kernels for which the use of their GPUs is wanted, too. */
    readonly fetchKernels: (useOf: readonly string[]) => Promise<readonly IRemoteKernel[]>;
    readonly fetchOverview: () => Promise<IOverview>;
    /** What a failed request means. */
    readonly problemOf: (error: unknown) => IModelProblem;
    /** Milliseconds between two requests. */
    readonly interval?: number;
  }
}
