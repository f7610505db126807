/**
 * The plugin of our section among what is running. It asks for the overview only while that list is visible.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';

import { IRemoteModel } from '../model/tokens';
import { kernelPath, post, refreshKernels } from '../request';
import { TRANSLATION_DOMAIN } from '../tokens';
import { RunningRemoteKernels } from './manager';

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
      await post(serviceManager.serverSettings, kernelPath(id, 'stop'), {});
      await refreshKernels(serviceManager);
    };
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
