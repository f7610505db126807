/**
 * What a notification says of a node that waits until its user has signed in.
 */
import { Clipboard, Notification } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';

import type { INode } from './tokens';

const TERMINAL = 'terminal:create-new';

/** Shows it, until what is returned is called or the user closes it. */
export function askToSignIn(commands: CommandRegistry, node: INode, name: string): () => void {
  const command = `${node.program} login ${name}`;
  const terminal = { label: 'Open Terminal', callback: () => void commands.execute(TERMINAL) };
  const id = Notification.warning(`${node.node} waits for you to sign in. In a terminal: ${command}`, {
    autoClose: false,
    actions: [
      { label: 'Copy Command', callback: () => Clipboard.copyToSystem(command) },
      ...(commands.hasCommand(TERMINAL) ? [terminal] : [])
    ].map(action => ({ ...action, callback: keepOpen(action.callback) }))
  });
  return () => Notification.dismiss(id);
}

/** A notification closes when one of its actions is chosen, unless the event's default is prevented. */
function keepOpen(callback: () => void): (event: MouseEvent) => void {
  return event => {
    event.preventDefault();
    callback();
  };
}
