/**
 * The widget of the form.
 */
import { ReactWidget } from '@jupyterlab/ui-components';
import React from 'react';

import { AddForm } from './form';
import type { IFormProps } from './form';

export class AddWidget extends ReactWidget {
  constructor(props: IFormProps) {
    super();
    this._props = props;
    this.addClass('jp-RemoteGPU-add');
    void props.session.load();
  }

  override dispose(): void {
    this._props.session.dispose();
    super.dispose();
  }

  protected override render(): JSX.Element {
    return <AddForm {...this._props} />;
  }

  protected override onActivateRequest(): void {
    this.node.querySelector<HTMLElement>('input')?.focus();
  }

  private readonly _props: IFormProps;
}
