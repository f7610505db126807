/**
 * The button “GPU” in the toolbar of a notebook with one of our kernels. It shows what `%gpu` shows, without a cell and
 * without an entry in the history; while the kernel is busy, what the hub knows.
 */
import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ToolbarButton } from '@jupyterlab/ui-components';
import * as React from 'react';

import { remoteGpuIcon } from '../icon';
import type { IRemoteModel } from '../model/tokens';
import { usesOf } from '../status/uses';
import type { Follower } from './follower';
import { EXPRESSION, parseStatus, rowsOfKernel, rowsOfStatus } from './gpuRows';
import type { Row } from './gpuRows';

/** In milliseconds: nvidia-smi may take some seconds. */
const TIMEOUT = 15000;

export class GpuButton {
  constructor(options: GpuButton.IOptions) {
    this._options = options;
    const { panel, follower, trans } = options;
    this._button = new ToolbarButton({
      icon: remoteGpuIcon,
      label: trans.__('GPU'),
      tooltip: trans.__('Show the GPUs of this kernel'),
      onClick: () => void this._open()
    });
    this._button.addClass('jp-RemoteGPU-gpuButton');
    this._button.hide();
    panel.toolbar.insertItem(10, 'jupyter-gpu-kernel-gpu', this._button);
    follower.changed.connect(this._update, this);
    this._update();
  }

  private _update(): void {
    if (!this._button.isDisposed) {
      this._button.setHidden(this._options.follower.kernel === null || this._options.follower.isLost);
    }
  }

  private async _open(): Promise<void> {
    const { panel, trans } = this._options;
    const body = ReactWidget.create(<Status load={() => this._load()} trans={trans} />);
    const title = trans.__('GPUs of %1', panel.context.path.split('/').pop() ?? '');
    await showDialog({ title, body, buttons: [Dialog.okButton({ label: trans.__('Close') })] });
    panel.content.node.focus();
  }

  /** Asks the kernel if it is idle, and falls back to what the hub knows. */
  private async _load(): Promise<{ rows: Row[]; note: string }> {
    const { panel, trans, follower, model } = this._options;
    const [kernel, now] = [panel.sessionContext.session?.kernel, Date.now() / 1000];
    const canAsk = (): boolean => kernel?.connectionStatus === 'connected' && follower.kernel?.row?.link !== 'away';
    let idle = canAsk() && kernel?.status === 'idle';
    if (!idle) {
      await model.refresh(); // the page's own requests make the kernel busy for it, too; the hub knows of cells
      idle = canAsk() && follower.kernel?.row?.state === 'idle';
    }
    const status = kernel && idle ? await askStatus(kernel) : null;
    if (status) {
      return { rows: rowsOfStatus(status, now, trans), note: '' };
    }
    await model.refresh();
    const row = follower.kernel?.row;
    const note = idle
      ? trans.__('The kernel has not answered. This is what is known without it:')
      : trans.__('The kernel is busy or out of reach. This is what is known without asking it:');
    return { rows: row ? rowsOfKernel(row, usesOf(row, model.overview, now), now, trans) : [], note };
  }

  private readonly _options: GpuButton.IOptions;
  private readonly _button: ToolbarButton;
}

/** A silent request: it is in no history, and shows nothing in the notebook. */
async function askStatus(kernel: Kernel.IKernelConnection): Promise<ReturnType<typeof parseStatus>> {
  const future = kernel.requestExecute({
    code: '',
    silent: true,
    store_history: false,
    allow_stdin: false,
    stop_on_error: false,
    user_expressions: { status: EXPRESSION }
  });
  const late = new Promise<null>(resolve => window.setTimeout(() => resolve(null), TIMEOUT));
  const reply = await Promise.race([future.done.catch(() => null), late]);
  const content = reply?.content as { user_expressions?: { status?: { data?: Record<string, unknown> } } } | undefined;
  return parseStatus(content?.user_expressions?.status?.data?.['text/plain']);
}

function Status(props: { load: () => Promise<{ rows: Row[]; note: string }>; trans: TranslationBundle }): JSX.Element {
  const [shown, setShown] = React.useState<{ rows: Row[]; note: string } | null>(null);
  React.useEffect(() => {
    let wanted = true;
    void props.load().then(loaded => wanted && setShown(loaded));
    return () => void (wanted = false);
  }, []);
  return (
    <div className="jp-RemoteGPU-gpuInfo" aria-busy={shown === null} role="status">
      {shown === null && <p>{props.trans.__('Asking the kernel…')}</p>}
      {shown?.note && <p>{shown.note}</p>}
      <table>
        <tbody>
          {shown?.rows.map(([label, value], index) => (
            <tr key={index}>
              <th scope="row">{label}</th>
              <td>{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export namespace GpuButton {
  export interface IOptions {
    readonly panel: NotebookPanel;
    readonly follower: Follower;
    readonly model: IRemoteModel;
    readonly trans: TranslationBundle;
  }
}
