/**
 * Follows the kernel of one notebook: which of our kernels it has or had, and whether the page can reach it.
 *
 * It knows no widgets. While the Jupyter server is out of reach it tries to reach it every few seconds, so that
 * JupyterLab, which waits longer and longer, connects at once when the server is back.
 */
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Poll, Throttler } from '@lumino/polling';
import { Signal } from '@lumino/signaling';

import type { IRemoteModel } from '../model/tokens';
import type { IRemoteKernel } from '../tokens';

const INTERVAL = 3000;
/** Milliseconds from a change of the kernel's state to the request: running many cells changes it often. */
const SETTLES_IN = 200;
/** Seconds between two requests because of messages of a kernel that was out of reach. */
const AGAIN = 1;

/** A kernel of ours that the notebook has, or had when its server ended. */
export interface IFollowed {
  /** The kernelspec's name. */
  readonly name: string;
  /** The last row of the kernel that the server sent, if it has sent any. */
  readonly row: IRemoteKernel | null;
}

export class Follower implements IDisposable {
  constructor(options: Follower.IOptions) {
    this._options = options;
    this._poll = new Poll<void>({
      auto: false,
      name: 'jupyter-gpu-kernel:server',
      factory: () => this._tryServer(),
      frequency: { interval: options.interval ?? INTERVAL, backoff: false },
      standby: 'when-hidden'
    });
    const { sessionContext, model } = options;
    sessionContext.sessionChanged.connect(this._update, this);
    sessionContext.kernelChanged.connect(this._update, this);
    sessionContext.connectionStatusChanged.connect(this._onStatus, this);
    sessionContext.statusChanged.connect(this._onStatus, this);
    sessionContext.iopubMessage.connect(this._onMessage, this);
    sessionContext.disposed.connect(this.dispose, this);
    model.changed.connect(this._update, this);
    this._update();
  }

  /** Emitted when anything here may have changed. */
  readonly changed = new Signal<this, void>(this);

  /** Null while the notebook has no kernel, or another one. */
  get kernel(): IFollowed | null {
    return this._kernel;
  }

  /** Since when the page cannot reach the Jupyter server, in seconds since 1970; null if it can. */
  get serverAwaySince(): number | null {
    return this._awaySince;
  }

  /** Whether the server has ended and, when it was back, did not know the notebook's kernel. */
  get isLost(): boolean {
    return this._kernel !== null && !this._isLocal;
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    if (!this.isDisposed) {
      this._poll.dispose();
      this._refresh.dispose();
      this._watch?.dispose();
      Signal.clearData(this);
    }
  }

  private _update(): void {
    const kernel = this._options.sessionContext.session?.kernel ?? null;
    if (kernel) {
      this._follow(kernel);
    } else if (this._awaySince === null) {
      this._kernel = null; // the user has shut it down
    } else {
      this._isLocal = false; // the kernel that the server had before it ended
    }
    this._adjust();
    this.changed.emit();
  }

  /** What the server says of the kernel has changed, too. */
  private _onStatus(): void {
    this._update();
    if (this._kernel && !this.isDisposed) {
      void this._refresh.invoke();
    }
  }

  /** The kernel may be in reach again: this asks at once, and not only at the next poll. */
  private _onMessage(): void {
    const { now, model } = this._options;
    if (this._kernel?.row?.link === 'away' && now() - this._askedAt >= AGAIN) {
      this._askedAt = now();
      void model.refresh();
    }
  }

  private _follow(kernel: Kernel.IKernelConnection): void {
    if (!this._options.isOurs(kernel)) {
      [this._kernel, this._awaySince, this._wasConnected] = [null, null, false];
      return;
    }
    const { kernels, problem } = this._options.model;
    const row = kernels.find(each => each.kernel_id === kernel.id);
    const known = this._isLocal && this._kernel?.name === kernel.name ? this._kernel.row : null;
    [this._kernel, this._isLocal] = [{ name: kernel.name, row: row ?? known }, true];
    const connected = kernel.connectionStatus === 'connected' && problem?.kind !== 'unreachable';
    this._wasConnected ||= connected;
    this._awaySince = connected || !this._wasConnected ? null : this._awaySince ?? this._options.now();
  }

  /** Watches the model, and tries to reach the server, as long as that is of use. */
  private _adjust(): void {
    if (this._kernel && this._isLocal) {
      this._watch ??= this._options.model.watchKernels();
    } else {
      this._watch?.dispose();
      this._watch = null;
    }
    const tries = this._kernel !== null && this._isLocal && this._awaySince !== null;
    if (tries && !this._tries) {
      void this._poll.start();
    } else if (!tries && this._tries) {
      void this._poll.stop();
    }
    this._tries = tries;
  }

  private async _tryServer(): Promise<void> {
    await this._options.reachServer();
    const kernel = this._options.sessionContext.session?.kernel;
    if (kernel?.connectionStatus === 'disconnected') {
      await kernel.reconnect(); // JupyterLab has given up
    }
    await this._options.model.refresh();
  }

  private readonly _options: Follower.IOptions;
  private readonly _poll: Poll<void>;
  // It does not wait for the response, since a change during the request needs another one.
  private readonly _refresh = new Throttler(() => void this._options.model.refresh(), { limit: SETTLES_IN, edge: 'trailing' });
  private _watch: IDisposable | null = null;
  private _kernel: IFollowed | null = null;
  /** Whether the server has the kernel, as far as the page knows. */
  private _isLocal = true;
  private _wasConnected = false;
  private _awaySince: number | null = null;
  private _tries = false;
  /** When a message was the last reason for a request, in seconds since 1970. */
  private _askedAt = 0;
}

export namespace Follower {
  export interface IOptions {
    readonly sessionContext: ISessionContext;
    readonly model: IRemoteModel;
    readonly isOurs: (kernel: Kernel.IKernelConnection) => boolean;
    /** Rejects while the server cannot be reached; has JupyterLab update its sessions when it can. */
    readonly reachServer: () => Promise<void>;
    /** The time, in seconds since 1970. */
    readonly now: () => number;
    /** Milliseconds between two attempts to reach the server. */
    readonly interval?: number;
  }
}
