/**
 * A detached kernel gets its notebook again, or a console if it has none.
 */
import type { ISessionContext } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { isConfirmed } from '../confirm';
import type { IAttached } from './requests';

/** Opens the notebook with the kernel that this server has now. If it has another kernel, the user decides. */
export async function openAttached(
  commands: CommandRegistry,
  trans: TranslationBundle,
  { kernel_id, path, session }: IAttached
): Promise<void> {
  const kernel = { id: kernel_id };
  if (path === null) {
    await commands.execute('console:create', { kernelPreference: kernel, activate: true });
    return;
  }
  const document: { sessionContext?: ISessionContext } | undefined = await commands.execute('docmanager:open', {
    path,
    ...(session ? { kernel } : {})
  });
  const context = document?.sessionContext;
  await context?.ready;
  if (context && context.session?.kernel?.id !== kernel_id && (await isWanted(trans, path, context))) {
    await context.changeKernel(kernel);
  }
}

/** Asks before the notebook's other kernel is replaced, which JupyterLab shuts down then. */
async function isWanted(trans: TranslationBundle, path: string, context: ISessionContext): Promise<boolean> {
  if (!context.session?.kernel) {
    return true;
  }
  const body = trans.__('“%1” has another kernel (%2), which will be shut down.', path, context.kernelDisplayName);
  return isConfirmed(trans, trans.__('Use this kernel instead?'), body, trans.__('Use This One'));
}
