import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { openPage } from './parts.mjs';
import { trans } from './trans.mjs';

register('./hooks.mjs', import.meta.url);
const { Reconnect } = await import('../lib/notebook/reconnect.js');
openPage();

const free = { id: 'k1', kernel_id: null, name: 'gpu2', node: 'gpu2', state: 'idle', attached: false };
const overview = () => ({ time: 1000, nodes: [], kernels: [free] });

test('an overview from before the end of the server offers nothing, and the next one does', () => {
  const offers = [];
  const panel = {
    disposed: new Signal({}),
    isDisposed: false,
    context: { path: 'a.ipynb' },
    contentHeader: { addWidget: widget => offers.push(widget) }
  };
  const follower = { changed: new Signal({}), isLost: false, kernel: { name: 'gpu2', row: { id: 'k1' } } };
  let watchers = 0;
  const model = { overview: overview(), watchOverview: () => ((watchers += 1), { dispose: () => (watchers -= 1) }) };
  new Reconnect({ panel, follower, model, trans });
  follower.isLost = true;
  follower.changed.emit();
  assert.deepEqual([offers.length, watchers], [0, 1]);
  model.overview = overview();
  follower.changed.emit();
  assert.equal(offers.length, 1);
  assert.match(offers[0].node.nodes[0].textContent, /still running on gpu2/);
  follower.isLost = false;
  follower.changed.emit();
  assert.deepEqual([offers[0].isDisposed, watchers], [true, 0]);
});
