/**
 * The plugin that restores outputs which a page has missed.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';

import { fetchJournal } from '../request';
import { isOurs } from '../specs';
import { OUTPUTS_PLUGIN_ID } from '../tokens';
import { MessageIds } from './messageIds';
import { Restorer } from './restorer';

export const outputs: JupyterFrontEndPlugin<void> = {
  id: OUTPUTS_PLUGIN_ID,
  description: 'Restores outputs of remote GPU kernels that the page has missed.',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker): void => {
    const { serverSettings, kernelspecs } = app.serviceManager;
    const dismissed = new MessageIds(window.localStorage, 'jupyter-gpu-kernel:dismissed');
    // Stored for this browser tab only, so that trust ends with the tab.
    const executed = new MessageIds(window.sessionStorage, 'jupyter-gpu-kernel:executed');
    tracker.widgetAdded.connect(async (_, panel) => {
      await Promise.all([panel.context.ready, kernelspecs.ready]);
      if (!panel.isDisposed) {
        new Restorer({
          panel,
          isOurs: kernel => isOurs(kernelspecs.specs, kernel),
          fetch: (kernelId, cellId) => fetchJournal(serverSettings, kernelId, cellId),
          dismissed,
          executed
        });
      }
    });
  }
};
