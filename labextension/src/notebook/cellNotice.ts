/**
 * The notice in the running cell while the node, or the Jupyter server, is out of reach.
 *
 * It is a widget below the cell's outputs, and not an output, so that it is never saved with the notebook.
 */
import type { CodeCell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { PanelLayout, Widget } from '@lumino/widgets';

import type { Follower } from './follower';
import { isBusy, noticeOf } from './noticeText';
import type { INotice } from './noticeText';
import { rememberRunning, runningCell } from './runningCell';

export class CellNotice {
  constructor(options: CellNotice.IOptions) {
    this._options = options;
    options.follower.changed.connect(this._update, this);
    options.panel.disposed.connect(() => this._hide());
    this._update();
  }

  private _update(): void {
    const { panel, follower, trans, now, signIn } = this._options;
    const row = follower.kernel?.row;
    const notice = row && !follower.isLost ? noticeOf(row, follower.serverAwaySince, now(), trans, signIn !== null) : null;
    const id = row?.id ?? '';
    const busy = (row && isBusy(row)) || panel.sessionContext.session?.kernel?.status === 'busy';
    const cell = notice && runningCell(panel, id, busy);
    if (row && !notice) {
      rememberRunning(panel, id, busy);
    }
    if (notice && cell) {
      this._show(notice, cell);
    } else {
      this._hide();
    }
  }

  private _show(notice: INotice, cell: CodeCell): void {
    if (this._cell !== cell || !this._widget) {
      this._hide();
      this._widget = new NoticeWidget(this._options.trans, this._options.signIn);
      this._cell = cell;
      (cell.layout as PanelLayout).addWidget(this._widget);
    }
    this._widget.setNotice(notice);
  }

  private _hide(): void {
    this._widget?.dispose();
    [this._widget, this._cell] = [null, null];
  }

  private readonly _options: CellNotice.IOptions;
  private _widget: NoticeWidget | null = null;
  private _cell: CodeCell | null = null;
}

/** Room for two lines, so that the height stays when the cause becomes known; a narrow page needs more. */
class NoticeWidget extends Widget {
  constructor(trans: TranslationBundle, signIn: (() => void) | null) {
    super();
    this.addClass('jp-RemoteGPU-cellNotice');
    this._text.className = 'jp-RemoteGPU-cellNotice-text';
    this._text.setAttribute('role', 'status');
    this._detail.className = 'jp-RemoteGPU-cellNotice-detail';
    this._button.className = 'jp-mod-styled jp-mod-accept jp-mod-small';
    this._button.textContent = trans.__('Sign in');
    this._button.hidden = true;
    this._button.addEventListener('click', () => signIn?.());
    const lines = document.createElement('div');
    lines.className = 'jp-RemoteGPU-cellNotice-lines';
    lines.append(this._text, this._detail);
    this.node.append(lines, this._button);
  }

  setNotice({ text, detail, signIn }: INotice): void {
    if (this._text.textContent !== text) {
      this._text.textContent = text; // a screen reader reads each change
    }
    this._detail.textContent = detail;
    this._text.title = text;
    this._detail.title = detail;
    this._button.hidden = !signIn;
  }

  private readonly _text = document.createElement('div');
  private readonly _detail = document.createElement('div');
  private readonly _button = document.createElement('button');
}

export namespace CellNotice {
  export interface IOptions {
    readonly panel: NotebookPanel;
    readonly follower: Follower;
    readonly trans: TranslationBundle;
    /** Starts the sign-in; null if there is none. */
    readonly signIn: (() => void) | null;
    /** The time, in seconds since 1970. */
    readonly now: () => number;
  }
}
