/**
 * The plugin that starts a kernel after its user has signed in.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { cancelled } from '../prompts/plugin';
import type { IPrompt } from '../prompts/prompt';
import { get } from '../request';
import { NODES_PATH, TRANSLATION_DOMAIN } from '../tokens';
import type { INode } from '../tokens';
import { askToSignIn } from './notification';
import { SignIn } from './signIn';

export const signIn: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:sign-in',
  description: 'Starts a remote GPU kernel again after the user has signed in to its node.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker, translator: ITranslator | null): void => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const { serverSettings, kernelspecs } = app.serviceManager;
    tracker.widgetAdded.connect((_, { sessionContext }) => {
      const signIn = new SignIn({
        sessionContext,
        specs: () => kernelspecs.specs,
        fetch: async () => (await get(serverSettings, NODES_PATH)) as INode[],
        tell: (node, name) => askToSignIn(app.commands, node, name, trans),
        preselect: name => preselect(name, sessionContext.name)
      });
      const onCancelled = (_: object, { waits }: IPrompt): void => signIn.cancelled(waits.name, waits.notebook);
      cancelled.connect(onCancelled);
      sessionContext.disposed.connect(() => cancelled.disconnect(onCancelled));
    });
  }
};

/** Selects a kernelspec in JupyterLab's dialogs for the kernel of this notebook, which have another one selected. */
function preselect(name: string, notebook: string): void {
  Dialog.tracker.forEach(({ node }) => {
    const options = Array.from(node.querySelectorAll('option'));
    const own = options.find(({ value }) => value === JSON.stringify({ name }));
    if (own && node.querySelector('label')?.textContent?.includes(`"${notebook}"`)) {
      own.selected = true;
    }
  });
}
