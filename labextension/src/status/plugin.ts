/**
 * The plugin of the status bar item for the current notebook's remote kernel.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';

import { IRemoteModel } from '../model/tokens';
import { PLUGIN_ID } from '../tokens';
import { LinkStatus } from './status';

export const status: JupyterFrontEndPlugin<void> = {
  id: PLUGIN_ID,
  description: "Shows the link state of the current notebook's remote GPU kernel.",
  autoStart: true,
  requires: [INotebookTracker, IRemoteModel],
  // Last and optional: some applications have no status bar.
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker, model: IRemoteModel, statusBar: IStatusBar | null): void => {
    if (!statusBar) {
      return;
    }
    const { kernelspecs } = app.serviceManager;
    const item = new LinkStatus({ tracker, model, specs: () => kernelspecs.specs });
    statusBar.registerStatusItem(PLUGIN_ID, {
      item,
      align: 'left',
      isActive: () => item.isActive(),
      activeStateChanged: item.activeChanged
    });
  }
};
