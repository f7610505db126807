/**
 * The plugin of our section among what is running. It asks for the overview only while that list is visible.
 *
 * Where any program shuts a kernel of the server down, it has JupyterLab update its list of kernels.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import { IRemoteModel } from '../model/tokens';
import { kernelPath, post, refreshKernels } from '../request';
import { TRANSLATION_DOMAIN } from '../tokens';
import { RunningRemoteKernels } from './manager';

/** The schema of jupyter_server's event that a kernel was started, restarted, interrupted or shut down. */
const KERNEL_ACTIONS = 'https://events.jupyter.org/jupyter_server/kernel_actions/v1';

/** In JupyterLab; in Notebook 7 the id goes on. */
const LIST = '[id^="jp-running-sessions"]';

export const running: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:running',
  description: 'Lists remote GPU kernels, detached ones too, among what is running.',
  autoStart: true,
  requires: [IRemoteModel],
  optional: [IRunningSessionManagers, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IRemoteModel,
    managers: IRunningSessionManagers | null,
    translator: ITranslator | null
  ): void => {
    const { serviceManager } = app;
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const stop = async (id: string): Promise<void> => {
      try {
        await post(serviceManager.serverSettings, kernelPath(id, 'stop'), {});
      } finally {
        await refreshKernels(serviceManager); // the kernel may have ended although no answer has come
      }
    };
    serviceManager.events.stream.connect((_, event) => {
      if (event.schema_id === KERNEL_ACTIONS && event.action === 'shutdown') {
        void refreshKernels(serviceManager); // another page, or another program, has stopped it
      }
    });
    managers?.add(new RunningRemoteKernels({ model, commands: app.commands, stop, trans }));
    if (managers) {
      void app.restored.then(() => watchWhileVisible(model));
    }
  }
};

function watchWhileVisible(model: IRemoteModel): void {
  const list = document.querySelector(LIST);
  let watch: IDisposable | null = null;
  const seen = (visible: boolean): void => {
    watch?.dispose();
    watch = visible ? model.watchOverview() : null;
  };
  if (list) {
    new IntersectionObserver(entries => seen(entries[entries.length - 1]!.isIntersecting)).observe(list);
  }
}
