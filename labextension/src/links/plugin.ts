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
import type { ReadonlyJSONObject } from '@lumino/coreutils';

import { isConfirmed } from '../confirm';
import { TRANSLATION_DOMAIN } from '../tokens';
import { line } from '../untrusted';
import { argumentsOf, ownCommands } from './commands';

/** The attributes are those of JupyterLab's `CommandLinker`. */
const COMMAND = 'data-commandlinker-command';
const ARGUMENTS = 'data-commandlinker-args';
const LONGEST_ARGUMENTS = 200;

export const links: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:links',
  description: 'Asks before a button in an output executes a command of remote GPU kernels.',
  autoStart: true,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null): void => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const onClick = (event: MouseEvent): void => {
      const link = event.target instanceof Element ? event.target.closest(`[${COMMAND}]`) : null;
      const command = link?.getAttribute(COMMAND) ?? '';
      const text = link?.getAttribute(ARGUMENTS) || '{}';
      const args = argumentsOf(text);
      const own = ownCommands(command, args).filter(each => app.commands.hasCommand(each));
      if (args && own.length) {
        event.preventDefault();
        event.stopPropagation();
        void ask(app.commands, { command, args, shown: line(text, LONGEST_ARGUMENTS), own }, trans);
      }
    };
    document.addEventListener('click', onClick, { capture: true }); // before JupyterLab's listener, which executes it
  }
};

interface ILink {
  readonly command: string;
  readonly args: ReadonlyJSONObject;
  /** The arguments, for the user. */
  readonly shown: string;
  /** Our commands that it executes. */
  readonly own: readonly string[];
}

async function ask(commands: CommandRegistry, { command, args, shown, own }: ILink, trans: TranslationBundle): Promise<void> {
  const title = trans.__('Run “%1”?', own.map(each => commands.label(each)).join('”, “'));
  const body = own.includes(command)
    ? trans.__('You have clicked a button that executes this command with %1.', shown)
    : trans.__('You have clicked a button that executes this command by “%1” with %2.', line(command, LONGEST_ARGUMENTS), shown);
  if (await isConfirmed(trans, title, body, trans.__('Run'))) {
    await commands.execute(command, args);
  }
}
