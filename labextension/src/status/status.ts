/**
 * The status bar item. It follows the current notebook, and polls while there is something to show.
 */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ServerConnection } from '@jupyterlab/services';
import type { Kernel, KernelSpec } from '@jupyterlab/services';
import { Debouncer, Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { isOurs } from '../specs';
import type { IRemoteKernel } from '../tokens';
import { outdated, viewOf } from './view';
import type { IView } from './view';

const INTERVAL = 5000;
const LONGEST_INTERVAL = 60000;
/** Delay after a change of the kernel's state, since running many cells changes it often. */
const SETTLES_IN = 200;

export class LinkStatus extends Widget {
  constructor(options: LinkStatus.IOptions) {
    super();
    this._options = options;
    this._text.className = 'jp-StatusBar-TextItem';
    this.node.append(this._text);
    this._poll = new Poll<void>({
      name: 'jupyter-gpu-kernel:status',
      factory: () => this._update(),
      frequency: { interval: INTERVAL, backoff: true, max: LONGEST_INTERVAL },
      standby: () => (this._worthAsking() ? 'when-hidden' : true)
    });
    document.addEventListener('visibilitychange', this._onVisibility);
    options.tracker.currentChanged.connect(this._follow, this);
    this._follow(options.tracker, options.tracker.currentWidget);
  }

  /** Emitted when the item becomes visible or invisible. */
  readonly activeChanged = new Signal<this, void>(this);

  isActive(): boolean {
    return this._view !== null;
  }

  override dispose(): void {
    document.removeEventListener('visibilitychange', this._onVisibility);
    this._refresh.dispose();
    this._poll.dispose();
    Signal.clearData(this);
    super.dispose();
  }

  private _follow(_: INotebookTracker, panel: NotebookPanel | null): void {
    if (this._panel && !this._panel.isDisposed) {
      this._panel.sessionContext.kernelChanged.disconnect(this._ask, this);
      this._panel.sessionContext.statusChanged.disconnect(this._askSoon, this);
      this._panel.sessionContext.connectionStatusChanged.disconnect(this._askSoon, this);
    }
    this._panel = panel;
    panel?.sessionContext.kernelChanged.connect(this._ask, this);
    panel?.sessionContext.statusChanged.connect(this._askSoon, this);
    panel?.sessionContext.connectionStatusChanged.connect(this._askSoon, this);
    this._ask();
  }

  /** Clears the item of another kernel, and requests the state at once. */
  private _ask(): void {
    this._show(null);
    void this._poll.refresh();
  }

  /** The kernel's state has changed, so the item may have to change. */
  private _askSoon(): void {
    void this._refresh.invoke();
  }

  private _kernel(): Kernel.IKernelConnection | null {
    return this._panel?.sessionContext.session?.kernel ?? null;
  }

  private _worthAsking(): boolean {
    const kernel = this._kernel();
    if (!kernel || this._unavailable) {
      return false;
    }
    return !this._foreign.has(kernel.id) || isOurs(this._options.specs(), kernel);
  }

  private async _update(): Promise<void> {
    const asked = this._kernel();
    try {
      const kernels = await this._options.fetch();
      if (asked && asked === this._kernel()) {
        this._known = kernels.find(each => each.kernel_id === asked.id);
        this._show(viewOf(kernels, asked.id));
        this._note(asked.id);
      }
    } catch (error) {
      const known = asked && this._known?.kernel_id === asked.id ? this._known : undefined;
      const view = known && viewOf([known], asked!.id);
      this._show(view && error instanceof ServerConnection.NetworkError ? outdated(view, known!.node) : null);
      // Our server extension is not loaded. Make no more requests until the page is reloaded.
      this._unavailable = error instanceof ServerConnection.ResponseError && error.response.status === 404;
      throw error; // so that the poll slows down
    }
  }

  /** Remembers kernels that are not ours, to make one request for each, and not one every five seconds. */
  private _note(id: string): void {
    if (this._view) {
      this._foreign.delete(id);
    } else {
      this._foreign.add(id);
    }
  }

  private _show(view: IView | null): void {
    if (this.isDisposed) {
      return;
    }
    this._text.textContent = view?.text ?? '';
    this.node.title = view?.tooltip ?? '';
    const changed = (view === null) !== (this._view === null);
    this._view = view;
    if (changed) {
      this.activeChanged.emit();
    }
  }

  /** The page is visible again. The user may have signed in in a terminal. */
  private readonly _onVisibility = (): void => {
    if (!document.hidden) {
      this._askSoon();
    }
  };

  private readonly _options: LinkStatus.IOptions;
  private readonly _poll: Poll<void>;
  private readonly _refresh = new Debouncer(() => (this._worthAsking() ? this._poll.refresh() : undefined), SETTLES_IN);
  private readonly _text = document.createElement('span');
  private readonly _foreign = new Set<string>();
  private _panel: NotebookPanel | null = null;
  private _view: IView | null = null;
  /** The last known state of the kernel that is shown. */
  private _known: IRemoteKernel | undefined;
  private _unavailable = false;
}

export namespace LinkStatus {
  export interface IOptions {
    readonly tracker: INotebookTracker;
    /** The kernelspecs, null while they are not known. */
    readonly specs: () => KernelSpec.ISpecModels | null;
    readonly fetch: () => Promise<IRemoteKernel[]>;
  }
}
