/**
 * What the hub says of kernels and nodes, asked as long as somebody watches.
 */
import * as vscode from 'vscode';

import { kernelsOf, usesOf } from './hub/border.js';
import type { IKernel } from './hub/border.js';
import type { Hub } from './hub/hub.js';
import { overviewOf } from './overview.js';
import type { IOverview } from './overview.js';
import type { IGpuUse } from './shared/words.js';

/** Milliseconds. A node runs nvidia-smi for each request about the use of GPUs. */
const KERNELS_INTERVAL = 2000;
const OVERVIEW_INTERVAL = 5000;
const USE_INTERVAL = 12_000;
const LEFT_INTERVAL = 10_000;
/** Seconds for which the hub waits for each node. */
const PATIENCE = 2;

export class Model implements vscode.Disposable {
  constructor(hub: Hub) {
    this._hub = hub;
  }

  /** There are other rows than before. */
  get changed(): vscode.Event<void> {
    return this._changed.event;
  }

  /** The kernels of front ends on this computer. */
  kernels: readonly IKernel[] = [];
  /** Kernels that no front end has, as far as `wantsLeft` is true. */
  left: readonly IKernel[] = [];
  wantsLeft = false;
  overview: IOverview | null = null;
  /** Why the hub cannot be asked; '' if it can. */
  problem = '';

  /** The use of the GPUs of this kernel, as far as it is known. */
  usesOf(id: string): readonly IGpuUse[] {
    return this._use?.id === id ? this._use.rows : [];
  }

  /** The kernel of which the use of GPUs is asked; '' for none. */
  set watchedUse(id: string) {
    if (this._use?.id !== id) {
      this._use = id ? { id, rows: [], time: 0 } : null;
    }
  }

  /** Asks for the kernels, until it is disposed of. */
  watchKernels(): vscode.Disposable {
    return this._kernelsPoll.watch();
  }

  /** Asks for the overview, until it is disposed of. */
  watchOverview(): vscode.Disposable {
    return this._overviewPoll.watch();
  }

  /** Asks at once for what is watched. */
  async refresh(): Promise<void> {
    this._hub.forgetSpecs();
    await Promise.all([this._kernelsPoll.ask(), this._overviewPoll.ask()]);
  }

  dispose(): void {
    this._kernelsPoll.dispose();
    this._overviewPoll.dispose();
    this._changed.dispose();
  }

  private async _askKernels(): Promise<void> {
    try {
      this.kernels = kernelsOf(await this._hub.call('kernels', {}, { start: false }));
      this.problem = '';
    } catch (error) {
      this.kernels = []; // without a hub there is no kernel of a front end here
      this.problem = String((error as Error).message);
    }
    void this._askUse();
    void this._askLeft();
    this._changed.fire();
  }

  private async _askLeft(): Promise<void> {
    if (!this.wantsLeft || this.problem || Date.now() - this._leftTime < LEFT_INTERVAL) {
      return;
    }
    this._leftTime = Date.now();
    try {
      const specs = await this._hub.specsForHub();
      const rows = kernelsOf(await this._hub.call('ps', { specs, patience: PATIENCE }, { start: false }));
      this.left = rows.filter(row => !row.attached && !row.attached_from && row.state !== 'ended');
      this._changed.fire();
    } catch {
      this.left = []; // the nodes cannot be asked now
    }
  }

  private async _askUse(): Promise<void> {
    const use = this._use;
    const kernel = this.kernels.find(one => one.id === use?.id);
    if (!use || Date.now() - use.time < USE_INTERVAL || kernel?.link !== 'up' || !kernel.gpus.length) {
      return;
    }
    use.time = Date.now();
    try {
      use.rows = usesOf(await this._hub.call('gpu_use', { kernel: use.id }, { start: false }));
      this._changed.fire();
    } catch {
      use.rows = []; // the node cannot be asked now
    }
  }

  private async _askOverview(): Promise<void> {
    try {
      const specs = await this._hub.specsForHub();
      const ask = (op: string): Promise<unknown> => this._hub.call(op, { specs, patience: PATIENCE });
      const [gpus, ps] = specs.length ? await Promise.all([ask('gpus'), ask('ps')]) : [[], []];
      const [nodes, kernels] = specs.length
        ? await Promise.all([this._hub.call('nodes', { specs }), this._hub.call('kernels')])
        : [[], []];
      this.overview = overviewOf({ nodes, gpus, ps, kernels }, Date.now() / 1000);
      this.problem = '';
    } catch (error) {
      this.problem = String((error as Error).message);
    }
    this._changed.fire();
  }

  private readonly _hub: Hub;
  private readonly _changed = new vscode.EventEmitter<void>();
  private readonly _kernelsPoll = new Poll(() => this._askKernels(), KERNELS_INTERVAL);
  private readonly _overviewPoll = new Poll(() => this._askOverview(), OVERVIEW_INTERVAL);
  private _leftTime = 0;
  private _use: { readonly id: string; rows: readonly IGpuUse[]; time: number } | null = null;
}

/** Asks at an interval while somebody watches. One request at a time. */
class Poll {
  constructor(ask: () => Promise<void>, interval: number) {
    this._ask = ask;
    this._interval = interval;
  }

  watch(): vscode.Disposable {
    this._watchers += 1;
    if (this._watchers === 1) {
      void this.ask();
    }
    return new vscode.Disposable(() => {
      this._watchers -= 1;
      if (this._watchers === 0) {
        clearTimeout(this._timer);
      }
    });
  }

  /** Asks now, if somebody watches. */
  async ask(): Promise<void> {
    clearTimeout(this._timer);
    if (this._watchers > 0) {
      this._asking ??= this._ask().finally(() => (this._asking = undefined));
      await this._asking;
    }
    if (this._watchers > 0) {
      clearTimeout(this._timer);
      this._timer = setTimeout(() => void this.ask(), this._interval);
    }
  }

  dispose(): void {
    this._watchers = 0;
    clearTimeout(this._timer);
  }

  private readonly _ask: () => Promise<void>;
  private readonly _interval: number;
  private _watchers = 0;
  private _asking: Promise<void> | undefined;
  private _timer: NodeJS.Timeout | undefined;
}
