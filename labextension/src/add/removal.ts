/**
 * Removes a kernelspec, after the user has agreed.
 */
import { Dialog, InputDialog, Notification, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

import { isConfirmed } from '../confirm';
import type { AddRequests } from './requests';
import { wayOf } from './types';
import type { ISpec } from './types';

/** `name`: a kernelspec; without, the user chooses one. Resolves to whether it was removed. */
export async function removeSpec(
  requests: AddRequests,
  refresh: () => Promise<void>,
  trans: TranslationBundle,
  name?: string
): Promise<boolean> {
  try {
    const specs = await requests.specs();
    const spec = name === undefined ? await choose(specs, trans) : specs.find(one => one.name === name);
    if (name !== undefined && !spec) {
      throw new Error(trans.__('There is no such remote GPU.')); // the name is not shown: a link may have given it
    }
    if (!spec || !(await agrees(spec.display_name, trans))) {
      return false;
    }
    const { notes } = await requests.remove(spec.name);
    await refresh();
    notes.forEach(note => Notification.info(note));
    return true;
  } catch (error) {
    await showErrorMessage(trans.__('Not removed'), error as Error);
    return false;
  }
}

async function choose(specs: readonly ISpec[], trans: TranslationBundle): Promise<ISpec | undefined> {
  const labels = specs.map(spec => `${spec.display_name} — ${wayOf(spec)}`);
  const title = trans.__('Remove a Remote GPU');
  if (!labels.length) {
    await showDialog({ title, body: trans.__('There is none.'), buttons: [Dialog.okButton()] });
    return undefined;
  }
  const { value } = await InputDialog.getItem({ title, items: labels, okLabel: trans.__('Continue') });
  return specs[labels.indexOf(value ?? '')];
}

function agrees(shown: string, trans: TranslationBundle): Promise<boolean> {
  const body = trans.__(
    'It disappears from the launcher and from the kernel menus. Kernels that run keep running, and nothing changes on the machine.'
  );
  return isConfirmed(trans, trans.__('Remove “%1”?', shown), body, trans.__('Remove'));
}
