/**
 * The plugin that restores outputs which a page has missed.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';

import { IRemoteModel } from '../model/tokens';
import { eachNotebook } from '../notebooks';
import { isOurs } from '../specs';
import { TRANSLATION_DOMAIN } from '../tokens';
import type { IRecord } from './journal';
import { journalSource } from './journalSource';
import { MessageIds } from './messageIds';
import { Restorer } from './restorer';

const ID = 'jupyter-gpu-kernel:outputs';

export const outputs: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Restores outputs of remote GPU kernels that the page has missed.',
  autoStart: true,
  requires: [INotebookTracker, IRemoteModel, ISettingRegistry],
  optional: [ITranslator],
  activate: async (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    model: IRemoteModel,
    registry: ISettingRegistry,
    translator: ITranslator | null
  ): Promise<void> => {
    const { serverSettings, kernelspecs } = app.serviceManager;
    const source = journalSource(serverSettings, model);
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const dismissed = new MessageIds(window.localStorage, 'jupyter-gpu-kernel:dismissed');
    const hasRun = new MessageIds(window.localStorage, 'jupyter-gpu-kernel:has-run');
    // Stored for this browser tab only, so that trust ends with the tab.
    const executed = new MessageIds(window.sessionStorage, 'jupyter-gpu-kernel:executed');
    const settings = await registry.load(ID);
    eachNotebook(app, tracker, panel => {
      new Restorer({
        panel,
        isOurs: kernel => isOurs(kernelspecs.specs, kernel),
        source,
        trustsNone: () => settings.get('untrusted_output').composite === true,
        dismissed,
        executed,
        hasRun,
        onDoubt: records => Notification.info(doubt(trans, panel.title.label, records), { autoClose: false })
      });
    });
  }
};

function doubt(trans: TranslationBundle, notebook: string, records: readonly IRecord[]): string {
  const [record] = records.slice(-1);
  const code = record!.code.trim().split('\n')[0]!.slice(0, 60);
  return trans._n(
    '%2: the output of a cell was missed (%3). It is not shown, as it is not known beyond doubt which cell printed it. Run %gpu missed in a cell to see it.',
    '%2: the output of %1 cells was missed, the last one was %3. It is not shown, as it is not known beyond doubt which cells printed it. Run %gpu missed in a cell to see it.',
    records.length,
    notebook,
    code
  );
}
