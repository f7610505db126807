/**
 * The plugin of the panel “Remote GPUs” and its commands.
 */
import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IRemoteModel } from '../model/tokens';
import { problemOf, refreshKernels } from '../request';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { Actions } from './actions';
import { CollapsedNodes } from './collapsed';
import { addCommands, interrupt } from './commands';
import { Requests } from './requests';
import { PANEL_ID, RemotePanel } from './widget';

const RANK = 210;
const IN_PALETTE = [
  CommandIDs.show,
  CommandIDs.refresh,
  CommandIDs.interrupt,
  CommandIDs.restart,
  CommandIDs.stop,
  CommandIDs.log
];

export const panel: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:panel',
  description: 'Shows all GPUs, kernels and queues in the sidebar.',
  autoStart: true,
  requires: [IRemoteModel],
  optional: [INotebookTracker, ICommandPalette, ILayoutRestorer, IStateDB, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IRemoteModel,
    tracker: INotebookTracker | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    state: IStateDB | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const { commands, shell } = app;
    const requests = new Requests(app.serviceManager.serverSettings);
    const actions = new Actions(problemOf, async () => {
      await refreshKernels(app.serviceManager); // first, so that a kernel which the panel shows as ended is known to have
      await model.refresh();
    });
    addCommands(commands, {
      trans,
      model,
      actions,
      requests,
      show: () => shell.activateById(PANEL_ID),
      addToMain: widget => shell.add(widget, 'main'),
      currentKernel: () => tracker?.currentWidget?.sessionContext.session?.kernel?.id
    });
    let lastChange = Promise.resolve(true);
    const widget = new RemotePanel(model, {
      trans,
      actions,
      collapsed: new CollapsedNodes(state),
      execute: (command, args) => void commands.execute(command, args),
      interrupt: id => void interrupt({ trans, actions, requests }, id),
      hasCommand: command => commands.hasCommand(command),
      prioritize: (node, priorities) => {
        const change = (): Promise<unknown> =>
          Promise.all([...priorities].map(([id, priority]) => requests.prioritize(id, priority)));
        lastChange = lastChange.then(() => actions.run(node, trans.__('changing the order…'), change));
        return lastChange;
      }
    });
    shell.add(widget, 'left', { rank: RANK });
    restorer?.add(widget, PANEL_ID);
    IN_PALETTE.forEach(command => palette?.addItem({ command, category: trans.__('Remote GPUs') }));
  }
};
