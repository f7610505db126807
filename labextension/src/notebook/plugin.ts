/**
 * The plugin for what a notebook shows of its remote kernel: that it is out of reach, or can be taken again; and its
 * GPUs, upon a click.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IRemoteModel } from '../model/tokens';
import { eachNotebook } from '../notebooks';
import { get } from '../request';
import { isOurs } from '../specs';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { CellNotice } from './cellNotice';
import { Follower } from './follower';
import { GpuButton } from './gpuButton';
import { keepOutHubNotices } from './hubNotice';
import { Reconnect } from './reconnect';

export const notebook: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:notebook',
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
    eachNotebook(app, tracker, panel => {
      const { sessionContext } = panel;
      const follower = new Follower({ sessionContext, model, isOurs: ours, reachServer, now });
      const signIn = (): void => void app.commands.execute(CommandIDs.signIn, { name: follower.kernel?.name });
      keepOutHubNotices(sessionContext, ours);
      new CellNotice({ panel, follower, trans, now, signIn: app.commands.hasCommand(CommandIDs.signIn) ? signIn : null });
      new GpuButton({ panel, follower, model, trans });
      new Reconnect({ panel, follower, model, trans });
    });
  }
};
