/**
 * Offers the kernel again that a notebook had before the Jupyter server was restarted, and that still runs.
 */
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { Widget } from '@lumino/widgets';

import type { IKernelOverview } from '../model/overview';
import type { IRemoteModel } from '../model/tokens';
import type { Follower } from './follower';
import { beginSearch, continueSearch, offerText } from './offer';
import type { ISearch } from './offer';

export class Reconnect {
  constructor(options: Reconnect.IOptions) {
    this._options = options;
    options.follower.changed.connect(this._update, this);
    options.panel.disposed.connect(() => this._end());
  }

  private _update(): void {
    const { follower, model, panel } = this._options;
    const followed = follower.kernel;
    if (!follower.isLost || !followed || panel.isDisposed) {
      return this._end();
    }
    if (this._search === null) {
      this._search = beginSearch(model.overview);
      this._watch = model.watchOverview();
    }
    if (this._connecting) {
      return;
    }
    this._search = continueSearch(this._search, model.overview, followed, panel.context.path);
    const { found, left } = this._search;
    if (found) {
      return this._show(found, followed.name);
    }
    this._hide();
    if (left <= 0) {
      this._watch?.dispose(); // the kernel is gone, or its node is
    }
  }

  private _show(kernel: IKernelOverview, name: string): void {
    const { trans, panel } = this._options;
    if (!this._widget) {
      this._widget = new Offer(trans.__('Reconnect'), () => void this._reconnect(name));
      panel.contentHeader.addWidget(this._widget);
    }
    this._widget.setText(offerText(kernel, Date.now() / 1000, trans));
  }

  /** Starts a kernel of the same kernelspec for the notebook: the hub gives it the one that it has left. */
  private async _reconnect(name: string): Promise<void> {
    this._connecting = true;
    this._widget?.setBusy(this._options.trans.__('Reconnecting…'));
    try {
      await this._options.panel.sessionContext.changeKernel({ name });
    } catch {
      this._hide(); // JupyterLab shows the error
    } finally {
      this._connecting = false;
      this._update();
    }
  }

  private _hide(): void {
    this._widget?.dispose();
    this._widget = null;
  }

  private _end(): void {
    this._hide();
    this._watch?.dispose();
    [this._watch, this._search] = [null, null];
  }

  private readonly _options: Reconnect.IOptions;
  private _widget: Offer | null = null;
  private _watch: IDisposable | null = null;
  /** Null while the notebook has a kernel. */
  private _search: ISearch | null = null;
  private _connecting = false;
}

class Offer extends Widget {
  constructor(label: string, reconnect: () => void) {
    super();
    this.addClass('jp-RemoteGPU-offer');
    this._text.setAttribute('role', 'status');
    this._button.className = 'jp-mod-styled jp-mod-accept jp-mod-small';
    this._button.textContent = label;
    this._button.addEventListener('click', reconnect);
    this.node.append(this._text, this._button);
  }

  setText(text: string): void {
    this._text.textContent = text;
  }

  setBusy(label: string): void {
    this._button.disabled = true;
    this._button.textContent = label;
  }

  private readonly _text = document.createElement('span');
  private readonly _button = document.createElement('button');
}

export namespace Reconnect {
  export interface IOptions {
    readonly panel: NotebookPanel;
    readonly follower: Follower;
    readonly model: IRemoteModel;
    readonly trans: TranslationBundle;
  }
}
