/**
 * The plugin of the status bar item for the current notebook's remote kernel.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { IRemoteModel } from '../model/tokens';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import type { IRemoteKernel } from '../tokens';
import { LinkStatus } from './status';

const ID = 'jupyter-gpu-kernel:status';

export const status: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "Shows the link state of the current notebook's remote GPU kernel.",
  autoStart: true,
  requires: [INotebookTracker, IRemoteModel],
  // Last and optional: some applications have no status bar.
  optional: [IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    model: IRemoteModel,
    statusBar: IStatusBar | null,
    translator: ITranslator | null
  ): void => {
    if (!statusBar) {
      return;
    }
    const { kernelspecs } = app.serviceManager;
    const item = new LinkStatus({
      tracker,
      model,
      specs: () => kernelspecs.specs,
      canSignIn: () => app.commands.hasCommand(CommandIDs.signIn),
      open: (kernel, signIn) => void open(app.commands, kernel, signIn),
      trans: (translator ?? nullTranslator).load(TRANSLATION_DOMAIN)
    });
    statusBar.registerStatusItem(ID, {
      item,
      align: 'left',
      isActive: () => item.isActive(),
      activeStateChanged: item.activeChanged
    });
  }
};

/** Starts the sign-in where that helps, or else opens the panel. */
async function open(commands: CommandRegistry, kernel: IRemoteKernel, signIn: boolean): Promise<void> {
  if (signIn) {
    await commands.execute(CommandIDs.signIn, { name: kernel.name });
  } else if (commands.hasCommand(CommandIDs.show)) {
    await commands.execute(CommandIDs.show);
  }
}
