/**
 * The plugin that offers to sign in for kernels that another program, such as VS Code, starts.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';

import { refreshAt } from '../refresher';
import { CommandIDs, TRANSLATION_DOMAIN } from '../tokens';
import { cancelWaitingStart, fetchWaitingStarts } from './requests';
import { WaitingStarts } from './starts';
import type { IWaitingStart } from './starts';

/** The schema of the event that other kernels than before wait for a sign-in. */
const EVENT = 'https://events.jupyter.org/jupyter_gpu_kernel/sign_ins/v1';

export const waiting: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-kernel:waiting',
  description: 'Offers to sign in for remote GPU kernels that other programs start.',
  autoStart: true,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null): void => {
    const { serverSettings } = app.serviceManager;
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const starts = new WaitingStarts({
      fetch: () => fetchWaitingStarts(serverSettings),
      tell: start => {
        const signIn = (): void => void app.commands.execute(CommandIDs.signIn, { name: start.name });
        return offer(start, signIn, () => void cancelWaitingStart(serverSettings, start.id), trans);
      }
    });
    refreshAt(app, EVENT, () => starts.refresh());
  }
};

/** Shows the notification for one of them. Returns a function that closes it. */
function offer(start: IWaitingStart, signIn: () => void, cancel: () => void, trans: TranslationBundle): () => void {
  const id = Notification.warning(textOf(start, trans), {
    autoClose: false,
    actions: [
      {
        label: trans.__('Sign In'),
        displayType: 'accent' as const,
        callback: (event: MouseEvent) => {
          event.preventDefault(); // the notification stays, for another attempt
          signIn();
        }
      },
      { label: trans.__('Cancel'), callback: cancel }
    ]
  });
  return () => Notification.dismiss(id);
}

function textOf({ name, node, notebook }: IWaitingStart, trans: TranslationBundle): string {
  return notebook
    ? trans.__('The kernel “%1” of %2 waits until you sign in to %3.', name, notebook, node)
    : trans.__('A kernel “%1”, started by VS Code or another program, waits until you sign in to %2.', name, node);
}
