/**
 * The plugin that provides the shared poll.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ServerConnection } from '@jupyterlab/services';

import { RemoteModel } from './model';
import { fetchKernels, fetchOverview } from './requests';
import { IRemoteModel } from './tokens';
import type { IModelProblem } from './tokens';

export const model: JupyterFrontEndPlugin<IRemoteModel> = {
  id: 'jupyter-gpu-kernel:model',
  description: 'Provides the nodes and kernels that the server knows, from one poll.',
  autoStart: true,
  provides: IRemoteModel,
  activate: (app: JupyterFrontEnd): IRemoteModel => {
    const { serverSettings } = app.serviceManager;
    const shared = new RemoteModel({
      fetchKernels: useOf => fetchKernels(serverSettings, useOf),
      fetchOverview: () => fetchOverview(serverSettings),
      problemOf
    });
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) {
        void shared.refresh(); // the user may have signed in in a terminal
      }
    });
    return shared;
  }
};

function problemOf(error: unknown): IModelProblem {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof ServerConnection.ResponseError) {
    return { kind: error.response.status === 404 ? 'missing' : 'refused', message };
  }
  return { kind: 'unreachable', message };
}
