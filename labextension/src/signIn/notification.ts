/**
 * The notification for a node that waits until its user has signed in.
 */
import { Clipboard, Notification } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';

import type { INode } from '../tokens';

const TERMINAL = 'terminal:create-new';

/** Shows the notification. Returns a function that closes it. */
export function askToSignIn(commands: CommandRegistry, node: INode, name: string): () => void {
  const command = `${node.program} login ${name}`;
  const terminal = { label: 'Open Terminal', callback: () => void commands.execute(TERMINAL) };
  const id = Notification.warning(`${node.node} requires you to sign in. Run in a terminal: ${command}`, {
    autoClose: false,
    actions: [
      { label: 'Copy Command', callback: () => Clipboard.copyToSystem(command) },
      ...(commands.hasCommand(TERMINAL) ? [terminal] : [])
    ].map(action => ({ ...action, callback: keepOpen(action.callback) }))
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
