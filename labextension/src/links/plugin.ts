/**
 * The plugin that asks before a button in an output executes one of our commands.
 *
 * JupyterLab keeps such buttons (“command links”) in notebooks that are not trusted, too. Releases before 4.6 execute
 * their commands at once.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { isConfirmed } from '../confirm';
import { TRANSLATION_DOMAIN } from '../tokens';
import { line } from '../untrusted';

const OURS = 'jupyter-gpu-kernel:';
const LONGEST_ARGUMENTS = 200;

export const links: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:links',
  description: 'Asks before a button in an output executes a command of remote GPU kernels.',
  autoStart: true,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null): void => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const onClick = (event: MouseEvent): void => {
      const link = event.target instanceof Element ? event.target.closest<HTMLElement>('[data-commandlinker-command]') : null;
      const { commandlinkerCommand: command = '', commandlinkerArgs: args = '{}' } = link?.dataset ?? {};
      if (command.startsWith(OURS)) {
        event.preventDefault();
        event.stopPropagation();
        void ask(app.commands, command, args, trans);
      }
    };
    document.addEventListener('click', onClick, { capture: true }); // before JupyterLab's listener, which executes it
  }
};

async function ask(commands: CommandRegistry, command: string, args: string, trans: TranslationBundle): Promise<void> {
  const title = trans.__('Run “%1”?', commands.hasCommand(command) ? commands.label(command) : command);
  const body = trans.__('You have clicked a button that executes this command with %1.', line(args, LONGEST_ARGUMENTS));
  if (await isConfirmed(trans, title, body, trans.__('Run'))) {
    await commands.execute(command, JSON.parse(args));
  }
}
