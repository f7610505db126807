/**
 * The plugin that asks the user for what connections need: passwords, codes, first host keys.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { refreshAt } from '../refresher';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { line } from '../untrusted';
import { showPrompt } from './dialog';
import type { IPrompt } from './prompt';
import { PromptQueue } from './queue';
import { fetchPrompts, sendReply, signIn } from './requests';

/** The schema of the event that there are other questions than before. */
const EVENT = 'https://events.jupyter.org/jupyter_gpu_kernel/prompts/v1';

/** Where the user answers, as the server's option `prompts` says: “terminal”, or else in a dialog here. */
const PROMPTS = 'gpuKernelPrompts';

const LONGEST_ERROR = 500;

/** Emitted with each question that the user has cancelled in this page. */
export const cancelled = new Signal<object, IPrompt>({});

export const prompts: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:prompts',
  description: 'Asks for the passwords, codes and host keys that connections to remote GPU nodes need.',
  autoStart: true,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null): void => {
    if (PageConfig.getOption(PROMPTS) === 'terminal') {
      return; // without the command nothing here offers a sign-in
    }
    const { serverSettings } = app.serviceManager;
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const queue = new PromptQueue({
      fetch: () => fetchPrompts(serverSettings),
      show: (prompt, problem) => showPrompt(prompt, problem, trans),
      send: async (prompt, reply) => {
        const problem = await sendReply(serverSettings, prompt.id, reply);
        if (reply === null) {
          cancelled.emit(prompt);
        }
        return problem;
      }
    });
    refreshAt(app, EVENT, () => queue.refresh());
    app.commands.addCommand(CommandIDs.signIn, {
      label: trans.__('Sign In to a Remote GPU'),
      describedBy: { args: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } },
      execute: args => (isName(args?.name) ? signInTo(serverSettings, args.name, trans) : false) // a link may call it, with anything
    });
  }
};

function isName(name: unknown): name is string {
  return typeof name === 'string' && /^[\w.-]{1,100}$/.test(name);
}

/** Signs in to the node of a kernelspec; the questions come as prompts. Whether it has succeeded. */
async function signInTo(
  settings: ServerConnection.ISettings,
  name: string,
  trans: TranslationBundle
): Promise<boolean> {
  const shown = line(name, 100);
  const id = Notification.emit(trans.__('Signing in to %1…', shown), 'in-progress', { autoClose: false });
  try {
    return await signIn(settings, name);
  } catch (error) {
    const message = line(error instanceof Error ? error.message : String(error), LONGEST_ERROR);
    Notification.error(trans.__('Not signed in to %1. %2', shown, message), { autoClose: false });
    return false;
  } finally {
    Notification.dismiss(id);
  }
}
