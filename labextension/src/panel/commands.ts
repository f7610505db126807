/**
 * The commands of the panel. Those about a kernel take {id}; without, they are about the current notebook's kernel.
 */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { Widget } from '@lumino/widgets';

import type { IKernelOverview } from '../model/overview';
import type { IRemoteModel } from '../model/tokens';
import type { Actions } from './actions';
import { openAttached } from './attach';
import { CommandIDs } from './ids';
import { titleOf } from './kernelView';
import type { KernelAction, Requests } from './requests';
import { storyWidget } from './story';

type Arguments = ReadonlyPartialJSONObject;

export interface ICommandContext {
  readonly trans: TranslationBundle;
  readonly model: IRemoteModel;
  readonly actions: Actions;
  readonly requests: Requests;
  /** Shows the panel. */
  readonly show: () => void;
  /** Adds a document to the main area. */
  readonly addToMain: (widget: Widget) => void;
  /** Jupyter's id of the current notebook's kernel. */
  readonly currentKernel: () => string | undefined;
}

export function addCommands(commands: CommandRegistry, context: ICommandContext): void {
  const { trans, model } = context;
  commands.addCommand(CommandIDs.show, { label: trans.__('Show Remote GPUs'), execute: context.show });
  commands.addCommand(CommandIDs.refresh, {
    label: trans.__('Refresh Remote GPUs'),
    execute: () => model.refresh()
  });
  addKernelCommands(commands, context);
}

function addKernelCommands(commands: CommandRegistry, context: ICommandContext): void {
  const { trans, requests } = context;
  const kernelOf = (args: Arguments): IKernelOverview | undefined => find(context, args);
  const add = (command: string, label: string, execute: (kernel: IKernelOverview) => unknown): void => {
    commands.addCommand(command, {
      label,
      isEnabled: args => kernelOf(args) !== undefined,
      execute: args => execute(kernelOf(args)!)
    });
  };
  const act = (kernel: IKernelOverview, action: KernelAction, text: string): Promise<boolean> =>
    context.actions.run(kernel.id, text, () => requests.act(kernel.id, action));

  add(CommandIDs.open, trans.__('Open the Notebook of This Remote Kernel'), kernel =>
    kernel.path ? commands.execute('docmanager:open', { path: kernel.path }) : undefined
  );
  add(CommandIDs.attach, trans.__('Attach This Remote Kernel'), kernel =>
    context.actions.run(kernel.id, trans.__('attaching…'), async () =>
      openAttached(commands, trans, await requests.attach(kernel.id))
    )
  );
  add(CommandIDs.interrupt, trans.__('Interrupt This Remote Kernel'), kernel =>
    act(kernel, 'interrupt', trans.__('interrupting…'))
  );
  add(CommandIDs.restart, trans.__('Restart This Remote Kernel…'), async kernel => {
    const body = trans.__('All variables of “%1” on %2 will be lost.', titleOf(trans, kernel), kernel.node);
    if (await isConfirmed(trans, trans.__('Restart this kernel?'), body, trans.__('Restart'))) {
      await act(kernel, 'restart', trans.__('restarting…'));
    }
  });
  add(CommandIDs.stop, trans.__('Stop This Remote Kernel…'), async kernel => {
    const body = trans.__(
      'The kernel of “%1” on %2 ends: its variables are lost, and its GPUs are free for others.',
      titleOf(trans, kernel),
      kernel.node
    );
    if (await isConfirmed(trans, trans.__('Stop this kernel?'), body, trans.__('Stop'))) {
      await act(kernel, 'stop', trans.__('stopping…'));
    }
  });
  add(CommandIDs.log, trans.__('Show the Log of This Remote Kernel'), kernel =>
    context.addToMain(
      storyWidget({ trans, title: titleOf(trans, kernel), fetch: () => requests.story(kernel.id) })
    )
  );
}

function find({ model, currentKernel }: ICommandContext, args: Arguments): IKernelOverview | undefined {
  const kernels: readonly IKernelOverview[] = model.overview?.kernels ?? [];
  if (typeof args.id === 'string') {
    return kernels.find(kernel => kernel.id === args.id);
  }
  const current = currentKernel();
  return current === undefined
    ? undefined
    : [...kernels, ...model.kernels].find(kernel => kernel.kernel_id === current);
}

async function isConfirmed(trans: TranslationBundle, title: string, body: string, accept: string): Promise<boolean> {
  const buttons = [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label: accept })];
  return (await showDialog({ title, body, buttons, defaultButton: 0 })).button.accept;
}
