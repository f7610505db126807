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

import { fetchJournal } from '../outputs/fetchJournal';
import { MessageIds } from '../outputs/messageIds';
import { isOurs } from '../specs';
import { LONG_CELLS_PLUGIN_ID, TOGGLE_LONG_CELLS, TRANSLATION_DOMAIN } from '../tokens';
import { Announcer } from './announcer';
import { endOf, Runs } from './runs';
import { Teller } from './tell';

export const longCells: JupyterFrontEndPlugin<void> = {
  id: LONG_CELLS_PLUGIN_ID,
  description: 'Says when a long cell of a remote GPU kernel has ended while the page was hidden or closed.',
  autoStart: true,
  requires: [INotebookTracker, ISettingRegistry],
  optional: [ITranslator, ICommandPalette],
  activate: async (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    registry: ISettingRegistry,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ): Promise<void> => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const teller = new Teller(trans);
    const settings = await registry.load(LONG_CELLS_PLUGIN_ID);
    const enabled = (): boolean => settings.get('enabled').composite === true;
    addSwitch(app, settings, enabled, teller, trans.__('Notify When a Long Cell of a Remote GPU Ends'));
    palette?.addItem({ command: TOGGLE_LONG_CELLS, category: trans.__('Remote GPUs') });

    const announcer = new Announcer({
      settings: () => ({ enabled: enabled(), seconds: Number(settings.get('seconds').composite) }),
      isHidden: () => document.hidden,
      tell: announcement => teller.tell(announcement),
      begun: new MessageIds(window.localStorage, 'jupyter-gpu-kernel:begun'),
      told: new MessageIds(window.localStorage, 'jupyter-gpu-kernel:told')
    });
    const { kernelspecs } = app.serviceManager;
    const add = async (panel: NotebookPanel): Promise<void> => {
      await Promise.all([panel.context.ready, kernelspecs.ready]);
      if (!panel.isDisposed) {
        follow(app, panel, announcer, enabled);
      }
    };
    tracker.forEach(panel => void add(panel));
    tracker.widgetAdded.connect((_, panel) => void add(panel));
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
    app.commands.notifyCommandChanged(TOGGLE_LONG_CELLS);
  });
  app.commands.addCommand(TOGGLE_LONG_CELLS, {
    label,
    isToggleable: true,
    isToggled: enabled,
    execute: () => settings.set('enabled', !enabled())
  });
}

/** Watches the kernels of a notebook. */
function follow(app: JupyterFrontEnd, panel: NotebookPanel, announcer: Announcer, enabled: () => boolean): void {
  const { serverSettings, kernelspecs } = app.serviceManager;
  const { sessionContext, context } = panel;
  const name = (): string => PathExt.basename(context.path);
  const watch = async (kernel: Kernel.IKernelConnection | null | undefined): Promise<void> => {
    if (!kernel || !isOurs(kernelspecs.specs, kernel)) {
      return;
    }
    const runs = new Runs(
      msgId => announcer.begun(msgId),
      ended => announcer.ended(name(), ended)
    );
    kernel.iopubMessage.connect((_, message: KernelMessage.IIOPubMessage) => runs.observe(message));
    if (!enabled()) {
      return;
    }
    const { cells } = await fetchJournal(serverSettings, kernel.id, '').catch(() => ({ cells: [] }));
    for (const record of cells) {
      const ended = endOf(record);
      ended ? announcer.endedBefore(name(), ended) : runs.resume(record);
    }
  };
  void watch(sessionContext.session?.kernel);
  sessionContext.kernelChanged.connect((_, { newValue }) => void watch(newValue));
}
