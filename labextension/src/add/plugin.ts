/**
 * The plugin of the form “Add a remote GPU”, and of the removal of one.
 */
import { ILabShell } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';

import { addRemoteGpuIcon, imageOf } from '../icon';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { removeSpec } from './removal';
import { AddRequests } from './requests';
import { AddSession } from './session';
import { AddWidget } from './widget';

const ID = 'jupyter-gpu-kernel-add';
const NEW_NOTEBOOK = 'notebook:create-new';
const NEW_TERMINAL = 'terminal:create-new';
const AFTER_KERNELS = 1000;

export const add: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:add',
  description: 'Adds and removes remote GPUs.',
  autoStart: true,
  optional: [ILabShell, ILauncher, ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    labShell: ILabShell | null,
    launcher: ILauncher | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ): void => {
    const translations = translator ?? nullTranslator;
    const trans = translations.load(TRANSLATION_DOMAIN);
    addCommands(app, trans, labShell ? 'main' : 'right'); // the pages of Notebook 7 have one main widget
    const category = translations.load('jupyterlab').__('Notebook'); // the launcher's own name of its section
    launcher?.add({ command: CommandIDs.add, category, rank: AFTER_KERNELS, kernelIconUrl: imageOf(addRemoteGpuIcon) });
    [CommandIDs.add, CommandIDs.remove].forEach(command => palette?.addItem({ command, category: trans.__('Remote GPUs') }));
  }
};

function addCommands(app: JupyterFrontEnd, trans: TranslationBundle, area: string): void {
  const { commands, shell, serviceManager } = app;
  const requests = new AddRequests(serviceManager.serverSettings);
  const refresh = (): Promise<void> => serviceManager.kernelspecs.refreshSpecs();
  let widget: MainAreaWidget<AddWidget> | null = null;
  let session: AddSession | null = null;
  commands.addCommand(CommandIDs.add, {
    label: trans.__('Add a Remote GPU…'),
    caption: trans.__('Make a machine that you reach by SSH a kernel of every notebook'),
    icon: addRemoteGpuIcon,
    execute: () => {
      if (!widget || widget.isDisposed) {
        session = new AddSession(requests, refresh);
        widget = formWidget(app, trans, session);
      }
      if (!widget.isAttached) {
        shell.add(widget, area);
      }
      shell.activateById(widget.id);
    }
  });
  commands.addCommand(CommandIDs.remove, {
    label: trans.__('Remove a Remote GPU…'),
    execute: async args => {
      const name = typeof args?.name === 'string' ? args.name : undefined;
      const removed = await removeSpec(requests, refresh, trans, name);
      await (removed && widget?.isAttached ? session?.load() : undefined);
      return removed;
    }
  });
}

function formWidget(app: JupyterFrontEnd, trans: TranslationBundle, session: AddSession): MainAreaWidget<AddWidget> {
  const { commands } = app;
  const content = new AddWidget({
    session,
    trans,
    openTerminal: commands.hasCommand(NEW_TERMINAL) ? () => void commands.execute(NEW_TERMINAL) : undefined,
    openNotebook: commands.hasCommand(NEW_NOTEBOOK)
      ? name => void commands.execute(NEW_NOTEBOOK, { kernelName: name })
      : undefined,
    remove: name => void commands.execute(CommandIDs.remove, { name })
  });
  const widget = new MainAreaWidget({ content });
  widget.id = ID;
  widget.title.label = trans.__('Add a remote GPU');
  widget.title.icon = addRemoteGpuIcon;
  widget.title.closable = true;
  return widget;
}
