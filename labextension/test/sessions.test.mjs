// What all messages of one kernel have in common, and why: JupyterLab's own class, which VS Code uses too.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import services from '@jupyterlab/services';

const { KernelMessage, ServerConnection } = services;
const { createMessage } = KernelMessage;

/** A socket to which the test gives messages of a kernel: all of an array within one tick. */
class Socket {
  static last;
  protocol = '';
  constructor() {
    Socket.last = this;
  }
  send() {}
  close() {}
  receive(messages) {
    messages.forEach(message => this.onmessage({ data: JSON.stringify(message) }));
  }
}

/** The types of the messages of a cell that a page sees, when these come with these sessions within one tick. */
async function seen(t, sessions) {
  const { KernelConnection } = await import('@jupyterlab/services/lib/kernel/default.js');
  const serverSettings = ServerConnection.makeSettings({ baseUrl: 'http://127.0.0.1:9/', WebSocket: Socket, fetch: () => new Promise(() => {}) });
  const kernel = new KernelConnection({ model: { id: 'k', name: 'n' }, serverSettings, username: 'u', clientId: 'c' });
  t.after(() => kernel.dispose());
  await new Promise(setImmediate);
  const future = kernel.requestExecute({ code: '' });
  const types = [];
  future.onIOPub = ({ header }) => void types.push(header.msg_type);
  future.done.catch(() => undefined);
  const content = { data: {}, metadata: {}, transient: { display_id: 'd' } };
  const messages = [['display_data', content], ['update_display_data', content], ['clear_output', { wait: false }]].map(([msgType, content], at) =>
    createMessage({ msgType, channel: 'iopub', session: sessions[at], parentHeader: future.msg.header, content })
  );
  Socket.last.receive(messages);
  await new Promise(resolve => setTimeout(resolve, 10));
  return types;
}

test('messages of one session that come together are all seen', async t => {
  assert.deepEqual(await seen(t, ['a', 'a', 'a']), ['display_data', 'update_display_data', 'clear_output']);
});

test('a text is dropped when a message of another session comes right behind it', async t => {
  assert.ok(!(await seen(t, ['a', 'b', 'b'])).includes('display_data'));
});
