/**
 * The notification for a node that waits until its user has signed in.
 */
import { Clipboard, Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

import { CommandIDs } from '../tokens';
import type { INode } from '../tokens';

/** Shows the notification. Returns a function that closes it. */
export function askToSignIn(
  commands: CommandRegistry,
  node: INode,
  name: string,
  trans: TranslationBundle
): () => void {
  const command = `${node.program} login ${name}`;
  const here = commands.hasCommand(CommandIDs.signIn);
  const text = here
    ? trans.__('%1 requires you to sign in, here or in a terminal: %2', node.node, command)
    : trans.__('%1 requires you to sign in in a terminal: %2', node.node, command);
  const signIn = (): void => void commands.execute(CommandIDs.signIn, { name });
  const actions = [
    ...(here ? [{ label: trans.__('Sign In'), displayType: 'accent' as const, callback: signIn }] : []),
    { label: trans.__('Copy Command'), callback: () => Clipboard.copyToSystem(command) }
  ];
  const id = Notification.warning(text, {
    autoClose: false,
    actions: actions.map(action => ({ ...action, callback: keepOpen(action.callback) }))
  });
  return () => Notification.dismiss(id);
}

/** Keeps the notification open, which closes when an action is chosen unless the event's default is prevented. */
function keepOpen(callback: () => void): (event: MouseEvent) => void {
  return event => {
    event.preventDefault();
    callback();
  };
}
