/**
 * The status bar item. It follows the current notebook, and watches the shared poll while there is something to show.
 */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelSpec } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { remoteGpuIcon } from '../icon';
import type { IRemoteModel } from '../model/tokens';
import { isOurs } from '../specs';
import type { IRemoteKernel } from '../tokens';
import { usesOf } from './uses';
import { outdated, viewOf } from './view';
import type { IView } from './view';

export class LinkStatus extends Widget {
  constructor(options: LinkStatus.IOptions) {
    super();
    this._options = options;
    this.addClass('jp-RemoteGPU-status');
    this.addClass('jp-mod-highlighted');
    this._text.className = 'jp-StatusBar-TextItem';
    remoteGpuIcon.element({ container: this._icon, stylesheet: 'statusBar' });
    this._icon.setAttribute('aria-hidden', 'true');
    this.node.append(this._icon, this._text);
    this.node.setAttribute('role', 'button');
    this.node.tabIndex = 0;
    this.node.addEventListener('click', () => this._open());
    this.node.addEventListener('keydown', event => this._onKey(event));
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
    this._watch?.dispose();
    Signal.clearData(this);
    super.dispose();
  }

  private _follow(_: INotebookTracker, panel: NotebookPanel | null): void {
    if (this._panel && !this._panel.isDisposed) {
      this._panel.sessionContext.kernelChanged.disconnect(this._ask, this);
    }
    this._panel = panel;
    panel?.sessionContext.kernelChanged.connect(this._ask, this);
    this._ask();
  }

  /** Clears the item of another kernel, and requests the state at once. */
  private _ask(): void {
    this._show(undefined, null);
    this._adjust();
    void this._options.model.refresh();
  }

  private _kernel(): Kernel.IKernelConnection | null {
    return this._panel?.sessionContext.session?.kernel ?? null;
  }

  /** Watches while the notebook has a kernel that may be ours. */
  private _adjust(): void {
    const kernel = this._kernel();
    const watched = kernel && (!this._foreign.has(kernel.id) || isOurs(this._options.specs(), kernel)) ? kernel.id : null;
    if (watched !== this._watched) {
      const before = this._watch;
      this._watch = watched === null ? null : this._options.model.watchKernels(watched);
      this._watched = watched;
      before?.dispose(); // last, so that the model does not pause in between
    }
  }

  private _update(): void {
    const [id, { kernels, problem }] = [this._kernel()?.id, this._options.model];
    const kernel = kernels.find(each => id !== undefined && each.kernel_id === id);
    if (problem?.kind === 'unreachable' && kernel) {
      this._show(kernel, outdated(this._viewOf(kernel), kernel.node, this._options.trans));
    } else {
      this._show(kernel, kernel && !problem ? this._viewOf(kernel) : null);
    }
    if (id !== undefined && !problem) {
      this._note(id);
      this._adjust();
    }
  }

  private _viewOf(kernel: IRemoteKernel): IView {
    const now = Date.now() / 1000;
    const view = viewOf(kernel, usesOf(kernel, this._options.model.overview, now), now, this._options.trans);
    return { ...view, signIn: view.signIn && this._options.canSignIn() };
  }

  /** Remembers kernels that are not ours, to make one request for each, and not one every five seconds. */
  private _note(id: string): void {
    if (this._view) {
      this._foreign.delete(id);
    } else {
      this._foreign.add(id);
    }
  }

  private _show(kernel: IRemoteKernel | undefined, view: IView | null): void {
    if (this.isDisposed) {
      return;
    }
    this._text.textContent = view?.text ?? '';
    this.node.title = view?.tooltip ?? '';
    this.node.setAttribute('aria-label', view ? `${view.text}. ${this._hint(view)}` : '');
    this.node.dataset.level = view?.level ?? 'normal';
    const changed = (view === null) !== (this._view === null);
    [this._shown, this._view] = [kernel, view];
    if (changed) {
      this.activeChanged.emit();
    }
  }

  private _hint(view: IView): string {
    const { trans } = this._options;
    return view.signIn ? trans.__('Sign in') : trans.__('Open the panel of remote GPUs');
  }

  private _open(): void {
    if (this._shown && this._view) {
      this._options.open(this._shown, this._view.signIn);
    }
  }

  private _onKey(event: KeyboardEvent): void {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      this._open();
    }
  }

  private readonly _options: LinkStatus.IOptions;
  private readonly _icon = document.createElement('span');
  private readonly _text = document.createElement('span');
  private readonly _foreign = new Set<string>();
  private _panel: NotebookPanel | null = null;
  private _shown: IRemoteKernel | undefined;
  private _view: IView | null = null;
  private _watch: IDisposable | null = null;
  /** Jupyter's id of the kernel that `_watch` is for. */
  private _watched: string | null = null;
}

export namespace LinkStatus {
  export interface IOptions {
    readonly tracker: INotebookTracker;
    readonly model: IRemoteModel;
    /** The kernelspecs, null while they are not known. */
    readonly specs: () => KernelSpec.ISpecModels | null;
    /** Whether the user can sign in here. */
    readonly canSignIn: () => boolean;
    /** The user has activated the item. `signIn`: whether signing in helps. */
    readonly open: (kernel: IRemoteKernel, signIn: boolean) => void;
    readonly trans: TranslationBundle;
  }
}
