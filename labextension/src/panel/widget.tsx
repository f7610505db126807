/**
 * The panel's widget: while it is visible, the overview is watched, and not otherwise.
 */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import React from 'react';

import { remoteGpuIcon } from '../icon';
import type { IRemoteModel } from '../model/tokens';
import { PanelContext } from './context';
import type { IPanelContext } from './context';
import { Panel } from './panel';

export const PANEL_ID = 'jupyter-gpu-kernel-panel';

export class RemotePanel extends ReactWidget {
  constructor(model: IRemoteModel, context: IPanelContext) {
    super();
    this._model = model;
    this._context = context;
    this.id = PANEL_ID;
    this.addClass('jp-RemoteGPU-panel');
    this.title.icon = remoteGpuIcon;
    this.title.caption = context.trans.__('Remote GPUs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', this.title.caption);
    model.changed.connect(this._render, this);
    context.actions.changed.connect(this._render, this);
    context.collapsed.changed.connect(this._render, this);
  }

  override dispose(): void {
    this._ignore();
    this._model.changed.disconnect(this._render, this);
    this._context.actions.changed.disconnect(this._render, this);
    this._context.collapsed.changed.disconnect(this._render, this);
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._follow();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this._follow();
    }
  }

  protected override onBeforeHide(message: Message): void {
    this._ignore();
    super.onBeforeHide(message);
  }

  protected override onBeforeDetach(message: Message): void {
    this._ignore();
    super.onBeforeDetach(message);
  }

  protected override render(): JSX.Element {
    return (
      <PanelContext.Provider value={{ ...this._context }}>
        <Panel overview={this._model.overview} problem={this._model.problem} />
      </PanelContext.Provider>
    );
  }

  private _follow(): void {
    this._watch ??= this._model.watchOverview();
    this.update();
  }

  private _ignore(): void {
    this._watch?.dispose();
    this._watch = null;
  }

  private _render(): void {
    if (this._watch) {
      this.update();
    }
  }

  private readonly _model: IRemoteModel;
  private readonly _context: IPanelContext;
  private _watch: IDisposable | null = null;
}
