/**
 * The plugins: the status bar item for the current notebook's remote kernel, the restoring of outputs that a
 * page has missed, and the start of a kernel after its user has signed in.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';

import { MessageIds } from './messageIds';
import { askToSignIn } from './notification';
import { fetchJournal, fetchKernels, fetchNodes } from './request';
import { Restorer } from './restorer';
import { SignIn } from './signIn';
import { isOurs } from './specs';
import { LinkStatus } from './status';
import { OUTPUTS_PLUGIN_ID, PLUGIN_ID, SIGN_IN_PLUGIN_ID } from './tokens';

const status: JupyterFrontEndPlugin<void> = {
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

const outputs: JupyterFrontEndPlugin<void> = {
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

const signIn: JupyterFrontEndPlugin<void> = {
  id: SIGN_IN_PLUGIN_ID,
  description: 'Starts a remote GPU kernel again after the user has signed in to its node.',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker): void => {
    const { serverSettings, kernelspecs } = app.serviceManager;
    tracker.widgetAdded.connect((_, { sessionContext }) => {
      new SignIn({
        sessionContext,
        specs: () => kernelspecs.specs,
        fetch: () => fetchNodes(serverSettings),
        tell: (node, name) => askToSignIn(app.commands, node, name)
      });
    });
  }
};

export default [status, outputs, signIn];
