/**
 * The commands of the panel. Those about a kernel take {id}; without, they are about the current notebook's kernel.
 *
 * Any output may have a button that executes a command (JupyterLab's “command linker”), also in a notebook that is not
 * trusted: a command that ends or disturbs something asks first, and its arguments may be anything.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { Widget } from '@lumino/widgets';

import { isConfirmed } from '../confirm';
import type { IKernelOverview } from '../model/overview';
import type { IRemoteModel } from '../model/tokens';
import type { Actions } from './actions';
import { openAttached } from './attach';
import { CommandIDs } from '../tokens';
import { kernelView, titleOf } from './kernelView';
import type { KernelAction, Requests } from './requests';
import { storyWidget } from './story';

type Arguments = ReadonlyPartialJSONObject | null | undefined;
type Acting = Pick<ICommandContext, 'trans' | 'actions' | 'requests'>;

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
  const add = (
    command: string,
    label: string,
    execute: (kernel: IKernelOverview) => unknown,
    isPossible: (kernel: IKernelOverview) => boolean = () => true
  ): void => {
    const kernelOf = (args: Arguments): IKernelOverview | undefined => {
      const kernel = find(context, args);
      return kernel && isPossible(kernel) ? kernel : undefined;
    };
    commands.addCommand(command, {
      label,
      isEnabled: args => kernelOf(args) !== undefined,
      execute: args => {
        const kernel = kernelOf(args); // not every caller asks whether the command is enabled
        return kernel && execute(kernel);
      }
    });
  };
  const act = (kernel: IKernelOverview, action: KernelAction, text: string): Promise<boolean> =>
    context.actions.run(kernel.id, text, () => requests.act(kernel.id, action));

  add(CommandIDs.open, trans.__('Open the Notebook of This Remote Kernel'), kernel =>
    kernel.path ? commands.execute('docmanager:open', { path: kernel.path }) : undefined
  );
  add(
    CommandIDs.attach,
    trans.__('Attach This Remote Kernel'),
    async kernel => {
      if (kernel.attached_from && !(await isTaken(trans, kernel))) {
        return;
      }
      await context.actions.run(kernel.id, trans.__('attaching…'), async () =>
        openAttached(commands, trans, await requests.attach(kernel.id))
      );
    },
    kernel => kernelView(trans, kernel, 0).canAttach
  );
  add(CommandIDs.interrupt, trans.__('Interrupt This Remote Kernel…'), async kernel => {
    const body = trans.__('The cell that runs in “%1” on %2 ends.', titleOf(trans, kernel), kernel.node);
    if (await isConfirmed(trans, trans.__('Interrupt this kernel?'), body, trans.__('Interrupt'))) {
      await interrupt(context, kernel.id);
    }
  });
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

/** Interrupts a kernel without asking: for the panel's own button. */
export async function interrupt({ trans, actions, requests }: Acting, id: string): Promise<void> {
  await actions.run(id, trans.__('interrupting…'), () => requests.act(id, 'interrupt'));
}

function find({ model, currentKernel }: ICommandContext, args: Arguments): IKernelOverview | undefined {
  const kernels: readonly IKernelOverview[] = model.overview?.kernels ?? [];
  if (args?.id !== undefined) {
    return kernels.find(kernel => kernel.id === args.id);
  }
  const current = currentKernel();
  return current === undefined
    ? undefined
    : [...kernels, ...model.kernels].find(kernel => kernel.kernel_id === current);
}

/** Asks before a kernel is taken from another computer. */
function isTaken(trans: TranslationBundle, kernel: IKernelOverview): Promise<boolean> {
  const [title, other] = [titleOf(trans, kernel), kernel.attached_from];
  const body = trans.__('“%1” on %2 is attached from %3, which then does not have it any more.', title, kernel.node, other);
  return isConfirmed(trans, trans.__('Attach this kernel here?'), body, trans.__('Attach'));
}
