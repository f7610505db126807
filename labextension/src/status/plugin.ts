/**
 * The plugin of the status bar item for the current notebook's remote kernel.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';

import { fetchKernels } from '../request';
import { PLUGIN_ID } from '../tokens';
import { LinkStatus } from './status';

export const status: JupyterFrontEndPlugin<void> = {
  id: PLUGIN_ID,
  description: "Shows the link state of the current notebook's remote GPU kernel.",
  autoStart: true,
  requires: [INotebookTracker],
  // Last and optional: some applications have no status bar.
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker, statusBar: IStatusBar | null): void => {
    if (!statusBar) {
      return;
    }
    const { serverSettings, kernelspecs } = app.serviceManager;
    const item = new LinkStatus({
      tracker,
      specs: () => kernelspecs.specs,
      fetch: () => fetchKernels(serverSettings)
    });
    statusBar.registerStatusItem(PLUGIN_ID, {
      item,
      align: 'left',
      isActive: () => item.isActive(),
      activeStateChanged: item.activeChanged
    });
  }
};
