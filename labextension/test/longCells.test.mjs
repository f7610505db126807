import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Announcer } from '../lib/longCells/announcer.js';
import { endOf, Runs } from '../lib/longCells/runs.js';
import { MessageIds } from '../lib/outputs/messageIds.js';

const storage = () => {
  const items = new Map();
  return { getItem: key => items.get(key) ?? null, setItem: (key, value) => items.set(key, value) };
};

/** A message of the kernel about the cell `msgId`, so many seconds after 2026 began. */
const message = (msgId, kind, second, content = {}, parent = 'execute_request') => ({
  header: { msg_type: kind, date: new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString() },
  parent_header: { msg_id: msgId, msg_type: parent },
  content
});

function watched() {
  const reported = [];
  const runs = new Runs(
    msgId => reported.push(msgId),
    ended => reported.push(ended)
  );
  return { runs, reported };
}

const idle = { execution_state: 'idle' };

test('a cell has run from its first message to its last, by the times of the messages', () => {
  const { runs, reported } = watched();
  runs.observe(message('a', 'execute_input', 1));
  runs.observe(message('a', 'stream', 5));
  runs.observe(message('a', 'status', 6, { execution_state: 'busy' }));
  runs.observe(message('a', 'status', 91, idle));
  assert.deepEqual(reported, ['a', { msgId: 'a', ok: true, seconds: 90 }]);
});

test('a cell that has failed is reported as such; other requests are no cells', () => {
  const { runs, reported } = watched();
  runs.observe(message('k', 'status', 1, idle, 'kernel_info_request'));
  runs.observe(message('silent', 'status', 1, idle));
  runs.observe(message('a', 'execute_input', 1));
  runs.observe(message('a', 'error', 2));
  runs.observe(message('a', 'status', 3, idle));
  assert.deepEqual(reported, ['a', { msgId: 'a', ok: false, seconds: 2 }]);
});

test('a cell that has begun before the page was loaded', () => {
  const { runs, reported } = watched();
  const begun = Date.UTC(2026, 0, 1) / 1000;
  runs.resume({ msg_id: 'a', status: 'running', started: begun, finished: null });
  runs.resume({ msg_id: 'b', status: 'waiting', started: null, finished: null });
  runs.observe(message('a', 'status', 100, idle));
  assert.deepEqual(reported, ['a', { msgId: 'a', ok: true, seconds: 100 }]);
});

test('the end of a cell in the journal', () => {
  const record = { msg_id: 'a', status: 'error', started: 10, finished: 100 };
  assert.deepEqual(endOf(record), { msgId: 'a', ok: false, seconds: 90 });
  assert.equal(endOf({ ...record, status: 'running', finished: null }), null);
  assert.equal(endOf({ ...record, status: 'aborted' }), null);
});

function announcing(changes = {}) {
  const page = { enabled: true, hidden: true, reported: [], store: storage() };
  const create = () =>
    new Announcer({
      settings: () => ({ enabled: page.enabled, seconds: 60 }),
      isHidden: () => page.hidden,
      tell: one => page.reported.push(one),
      begun: new MessageIds(page.store, 'begun'),
      reported: new MessageIds(page.store, 'reported')
    });
  return { page: Object.assign(page, changes), announcer: create(), create };
}

const LONG = { msgId: 'a', ok: true, seconds: 90 };

test('a long cell is reported once, while the page is hidden', () => {
  const { page, announcer } = announcing();
  announcer.ended('n.ipynb', LONG);
  announcer.ended('n.ipynb', LONG);
  assert.deepEqual(page.reported, [{ notebook: 'n.ipynb', ok: true, seconds: 90 }]);
});

test('nothing is reported of short cells, to a page that is looked at, or while it is switched off', () => {
  for (const changes of [{ hidden: false }, { enabled: false }, {}]) {
    const { page, announcer } = announcing(changes);
    announcer.ended('n.ipynb', { ...LONG, seconds: 'hidden' in changes || 'enabled' in changes ? 90 : 59 });
    assert.deepEqual(page.reported, []);
  }
});

test('what has ended while the page was closed is reported when it is opened again, if this browser saw it begin', () => {
  const { page, announcer, create } = announcing({ hidden: false });
  announcer.begun('a');
  const reopened = create();
  reopened.endedBefore('n.ipynb', LONG);
  reopened.endedBefore('n.ipynb', LONG);
  reopened.endedBefore('n.ipynb', { ...LONG, msgId: 'of another front end' });
  assert.equal(page.reported.length, 1);
});

test('what a page has shown is not reported again when it is opened again, nor what another tab has reported', () => {
  const { page, announcer, create } = announcing({ hidden: false });
  announcer.begun('a');
  announcer.ended('n.ipynb', LONG);
  create().endedBefore('n.ipynb', LONG);
  page.hidden = true;
  create().ended('n.ipynb', LONG);
  assert.deepEqual(page.reported, []);
});

test('a cell that ended while it was switched off, or was short, is not reported later', () => {
  const { page, announcer } = announcing();
  announcer.begun('a');
  announcer.endedBefore('n.ipynb', { ...LONG, seconds: 59 });
  page.enabled = false;
  announcer.endedBefore('n.ipynb', LONG);
  announcer.begun('b');
  page.enabled = true;
  announcer.endedBefore('n.ipynb', { ...LONG, msgId: 'b' });
  assert.deepEqual(page.reported, []);
});
