/**
 * The plugin that says when a long cell has ended while the page was hidden or closed. Off by default.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IRemoteModel } from '../model/tokens';
import { eachNotebook } from '../notebooks';
import type { IRecord } from '../outputs/journal';
import { JournalPoll } from '../outputs/journalPoll';
import type { IJournalSource } from '../outputs/journalPoll';
import { journalSource } from '../outputs/journalSource';
import { MessageIds } from '../outputs/messageIds';
import { isOurs } from '../specs';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { Announcer } from './announcer';
import { endOf, Runs } from './runs';
import { Teller } from './tell';

const ID = 'jupyter-gpu-kernel:long-cells';

export const longCells: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Says when a long cell of a remote GPU kernel has ended while the page was hidden or closed.',
  autoStart: true,
  requires: [INotebookTracker, IRemoteModel, ISettingRegistry],
  optional: [ITranslator, ICommandPalette],
  activate: async (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    model: IRemoteModel,
    registry: ISettingRegistry,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ): Promise<void> => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const teller = new Teller(trans);
    const settings = await registry.load(ID);
    const enabled = (): boolean => settings.get('enabled').composite === true;
    addSwitch(app, settings, enabled, teller, trans.__('Notify When a Long Cell of a Remote GPU Ends'));
    palette?.addItem({ command: CommandIDs.toggleLongCells, category: trans.__('Remote GPUs') });

    const announcer = new Announcer({
      settings: () => ({ enabled: enabled(), seconds: Number(settings.get('seconds').composite) }),
      isHidden: () => document.hidden,
      tell: announcement => teller.tell(announcement),
      begun: new MessageIds(window.localStorage, 'jupyter-gpu-kernel:begun'),
      reported: new MessageIds(window.localStorage, 'jupyter-gpu-kernel:reported')
    });
    const { kernelspecs, serverSettings } = app.serviceManager;
    const source = journalSource(serverSettings, model);
    const ours = (kernel: Kernel.IKernelConnection): boolean => isOurs(kernelspecs.specs, kernel);
    eachNotebook(app, tracker, panel => follow(panel, source, ours, announcer, enabled));
  }
};

/** The command with a check mark; the browser is asked for its permission when the user switches it on, never before. */
function addSwitch(
  app: JupyterFrontEnd,
  settings: ISettingRegistry.ISettings,
  enabled: () => boolean,
  teller: Teller,
  label: string
): void {
  let before = enabled();
  settings.changed.connect(() => {
    if (enabled() && !before) {
      void teller.askPermission();
    }
    before = enabled();
    app.commands.notifyCommandChanged(CommandIDs.toggleLongCells);
  });
  app.commands.addCommand(CommandIDs.toggleLongCells, {
    label,
    isToggleable: true,
    isToggled: enabled,
    execute: () => settings.set('enabled', !enabled())
  });
}

/** Watches the kernels of a notebook. */
function follow(
  panel: NotebookPanel,
  source: IJournalSource,
  ours: (kernel: Kernel.IKernelConnection) => boolean,
  announcer: Announcer,
  enabled: () => boolean
): void {
  const { sessionContext, context } = panel;
  const name = (): string => PathExt.basename(context.path);
  let journal: JournalPoll | null = null;
  const watch = (kernel: Kernel.IKernelConnection | null | undefined): void => {
    journal?.dispose();
    if (!kernel || !ours(kernel)) {
      return;
    }
    const runs = new Runs(
      msgId => announcer.begun(msgId),
      ended => announcer.ended(name(), ended)
    );
    const notice = (record: IRecord): void => {
      const ended = endOf(record);
      ended ? announcer.endedBefore(name(), ended) : runs.resume(record);
    };
    kernel.iopubMessage.connect((_, message: KernelMessage.IIOPubMessage) => runs.observe(message));
    if (enabled()) {
      journal = new JournalPoll({
        source,
        kernelId: kernel.id,
        next: () => undefined, // the whole journal, once
        take: ({ cells }) => cells.forEach(notice)
      });
    }
  };
  watch(sessionContext.session?.kernel);
  sessionContext.kernelChanged.connect((_, { newValue }) => watch(newValue));
  panel.disposed.connect(() => journal?.dispose());
}
