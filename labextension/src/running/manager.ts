/**
 * Our section in JupyterLab's list of what is running.
 */
import type { IRunningSessions } from '@jupyterlab/running';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';

import { remoteGpuIcon } from '../icon';
import type { IRemoteModel } from '../model/tokens';
import { CommandIDs } from '../tokens';
import { detailOf, labelOf, runningKernels, tooltipOf } from './items';

export class RunningRemoteKernels implements IRunningSessions.IManager {
  constructor(options: RunningRemoteKernels.IOptions) {
    this._options = options;
    const { trans } = options;
    this.name = trans.__('Remote GPU Kernels');
    this.shutdownLabel = trans.__('Stop This Remote Kernel…');
    this.shutdownAllLabel = trans.__('Stop All');
    this.shutdownAllConfirmationText = trans.__(
      'Stop all remote GPU kernels, also those that other programs use? Their variables will be lost.'
    );
    options.model.changed.connect(() => this.runningChanged.emit());
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;
  readonly runningChanged = new Signal<this, void>(this);

  running(): IRunningSessions.IRunningItem[] {
    const { model, commands, trans } = this._options;
    return runningKernels(model.overview, model.kernels).map(kernel => ({
      context: kernel.id,
      icon: () => remoteGpuIcon,
      label: () => labelOf(kernel),
      labelTitle: () => tooltipOf(kernel, trans),
      detail: () => detailOf(kernel, Date.now() / 1000, trans),
      open: () => void this._run(kernel.path || kernel.kernel_id ? CommandIDs.open : CommandIDs.attach, kernel.id),
      shutdown: commands.hasCommand(CommandIDs.stop) ? () => void this._run(CommandIDs.stop, kernel.id) : undefined
    }));
  }

  shutdownAll(): void {
    const { model, stop } = this._options;
    const all = runningKernels(model.overview, model.kernels);
    void Promise.allSettled(all.map(kernel => stop(kernel.id))).then(() => model.refresh());
  }

  refreshRunning(): void {
    void this._options.model.refresh();
  }

  /** The commands know kernels of the overview only. */
  private async _run(command: string, id: string): Promise<void> {
    if (this._options.commands.isEnabled(command, { id })) {
      await this._options.commands.execute(command, { id });
    }
  }

  private readonly _options: RunningRemoteKernels.IOptions;
}

export namespace RunningRemoteKernels {
  export interface IOptions {
    readonly model: IRemoteModel;
    readonly commands: CommandRegistry;
    /** Stops a kernel without asking its user. */
    readonly stop: (id: string) => Promise<unknown>;
    readonly trans: TranslationBundle;
  }
}
