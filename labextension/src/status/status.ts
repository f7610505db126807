/**
 * The status bar item. It follows the current notebook, and watches the shared poll while there is something to show.
 */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelSpec } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Debouncer } from '@lumino/polling';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import type { IRemoteModel } from '../model/tokens';
import { isOurs } from '../specs';
import { outdated, viewOf } from './view';
import type { IView } from './view';

/** Delay after a change of the kernel's state, since running many cells changes it often. */
const SETTLES_IN = 200;

export class LinkStatus extends Widget {
  constructor(options: LinkStatus.IOptions) {
    super();
    this._options = options;
    this._text.className = 'jp-StatusBar-TextItem';
    this.node.append(this._text);
    options.model.changed.connect(this._update, this);
    options.tracker.currentChanged.connect(this._follow, this);
    this._follow(options.tracker, options.tracker.currentWidget);
  }

  /** Emitted when the item becomes visible or invisible. */
  readonly activeChanged = new Signal<this, void>(this);

  isActive(): boolean {
    return this._view !== null;
  }

  override dispose(): void {
    this._refresh.dispose();
    this._watch?.dispose();
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
    this._adjust();
    void this._options.model.refresh();
  }

  /** The kernel's state has changed, so the item may have to change. */
  private _askSoon(): void {
    this._adjust();
    void this._refresh.invoke();
  }

  private _kernel(): Kernel.IKernelConnection | null {
    return this._panel?.sessionContext.session?.kernel ?? null;
  }

  /** Watches while the notebook has a kernel that may be ours. */
  private _adjust(): void {
    const kernel = this._kernel();
    if (!kernel || (this._foreign.has(kernel.id) && !isOurs(this._options.specs(), kernel))) {
      this._watch?.dispose();
      this._watch = null;
    } else {
      this._watch ??= this._options.model.watchKernels();
    }
  }

  private _update(): void {
    const [kernel, { kernels, problem }] = [this._kernel(), this._options.model];
    const view = kernel && problem?.kind !== 'missing' ? viewOf(kernels, kernel.id) : null;
    if (problem?.kind === 'unreachable' && view) {
      this._show(outdated(view, kernels.find(each => each.kernel_id === kernel!.id)!.node));
    } else {
      this._show(problem ? null : view);
    }
    if (kernel && !problem) {
      this._note(kernel.id);
      this._adjust();
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

  private readonly _options: LinkStatus.IOptions;
  private readonly _refresh = new Debouncer(() => this._options.model.refresh(), SETTLES_IN);
  private readonly _text = document.createElement('span');
  private readonly _foreign = new Set<string>();
  private _panel: NotebookPanel | null = null;
  private _view: IView | null = null;
  private _watch: IDisposable | null = null;
}

export namespace LinkStatus {
  export interface IOptions {
    readonly tracker: INotebookTracker;
    readonly model: IRemoteModel;
    /** The kernelspecs, null while they are not known. */
    readonly specs: () => KernelSpec.ISpecModels | null;
  }
}
