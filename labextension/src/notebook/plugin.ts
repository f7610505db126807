/**
 * The plugin for what a notebook shows of its remote kernel: that it is out of reach, or can be taken again; and its
 * GPUs, upon a click.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IRemoteModel } from '../model/tokens';
import { get } from '../request';
import { isOurs } from '../specs';
import { NOTEBOOK_PLUGIN_ID, SIGN_IN, TRANSLATION_DOMAIN } from '../tokens';
import { CellNotice } from './cellNotice';
import { Follower } from './follower';
import { GpuButton } from './gpuButton';
import { keepOutHubNotices } from './hubNotice';
import { Reconnect } from './reconnect';

export const notebook: JupyterFrontEndPlugin<void> = {
  id: NOTEBOOK_PLUGIN_ID,
  description: 'Shows in a notebook that its remote GPU kernel is out of reach, and offers it after a restart of the server.',
  autoStart: true,
  requires: [INotebookTracker, IRemoteModel],
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker, model: IRemoteModel, translator: ITranslator | null): void => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const { serverSettings, kernelspecs, sessions } = app.serviceManager;
    const ours = (kernel: Kernel.IKernelConnection): boolean => isOurs(kernelspecs.specs, kernel);
    const reachServer = async (): Promise<void> => {
      await get(serverSettings, 'api'); // not by `sessions`, which shows a dialog at each failure
      await sessions.refreshRunning();
    };
    const now = (): number => Date.now() / 1000;
    const add = (panel: NotebookPanel): void => {
      const { sessionContext } = panel;
      const follower = new Follower({ sessionContext, model, isOurs: ours, reachServer, now });
      const signIn = (): void => void app.commands.execute(SIGN_IN, { name: follower.kernel?.name });
      keepOutHubNotices(sessionContext, ours);
      new CellNotice({ panel, follower, trans, now, signIn: app.commands.hasCommand(SIGN_IN) ? signIn : null });
      new GpuButton({ panel, follower, model, trans });
      new Reconnect({ panel, follower, model, trans });
    };
    tracker.widgetAdded.connect(async (_, panel) => {
      await Promise.all([panel.context.ready, kernelspecs.ready]);
      if (!panel.isDisposed) {
        add(panel);
      }
    });
  }
};
