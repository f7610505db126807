/**
 * The question before something that cannot be undone. Cancel is preselected.
 */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';

/** Whether the user agrees. `accept`: the label of the button. */
export async function isConfirmed(trans: TranslationBundle, title: string, body: string, accept: string): Promise<boolean> {
  const buttons = [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label: accept })];
  return (await showDialog({ title, body, buttons, defaultButton: 0 })).button.accept;
}
