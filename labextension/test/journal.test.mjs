import assert from 'node:assert/strict';
import { test } from 'node:test';

import { mayAnswer, parseJournal, questionOf } from '../lib/outputs/journal.js';

const cell = {
  msg_id: 'm1',
  cell_id: 'c1',
  session: 's1',
  left: false,
  code: 'f()',
  status: 'ok',
  execution_count: 4,
  started: 1000.5,
  finished: null,
  dropped: false,
  asks: null,
  outputs: []
};
const bundle = { data: { 'text/plain': '1' }, metadata: {} };
const outputs = [
  { msg_type: 'stream', content: { name: 'stdout', text: '1' } },
  { msg_type: 'display_data', content: { ...bundle, transient: { display_id: 'd' } } },
  { msg_type: 'update_display_data', content: bundle },
  { msg_type: 'execute_result', content: { ...bundle, execution_count: 4 } },
  { msg_type: 'error', content: { ename: 'E', evalue: 'v', traceback: ['1', '2'] } },
  { msg_type: 'clear_output', content: { wait: true } }
];
const cellsOf = changes => parseJournal({ kernel: 'k1', cells: [{ ...cell, ...changes }] }).cells;

test('a journal is passed on as it is', () => {
  const journal = { kernel: 'k1', cells: [{ ...cell, outputs }] };
  assert.deepEqual(parseJournal(structuredClone(journal)), journal);
});

test('what is no journal has no cells', () => {
  for (const answer of [null, 5, 'cells', [], {}, { cells: null }, { cells: {} }, { cells: [null, 1, 'c', []] }]) {
    assert.deepEqual(parseJournal(answer).cells, []);
  }
});

test('an older keeper tells neither the session nor who has left', () => {
  const [{ session, left }] = cellsOf({ session: undefined, left: 'yes' });
  assert.deepEqual([session, left], ['', false]);
});

test('a malformed record is left out', () => {
  const wrong = { msg_id: 1, cell_id: null, code: {}, status: 'constructor', execution_count: '4', started: NaN, finished: {} };
  for (const [key, value] of Object.entries(wrong)) {
    assert.deepEqual(cellsOf({ [key]: value }), [], key);
    assert.deepEqual(cellsOf({ [key]: undefined }), [], key);
  }
});

test('a malformed output is left out, the others stay', () => {
  const wrong = [
    null,
    { msg_type: 'stream' },
    { msg_type: 'stream', content: { name: 'stdout', text: 5 } },
    { msg_type: 'display_data', content: { data: '<b>', metadata: {} } },
    { msg_type: 'display_data', content: { data: {}, metadata: {}, transient: 'd' } },
    { msg_type: 'execute_result', content: { ...bundle, execution_count: 'one' } },
    { msg_type: 'error', content: { ename: 'E', evalue: 'v', traceback: [{}] } },
    { msg_type: 'error', content: { ename: 'E', evalue: 'v', traceback: 'text' } },
    { msg_type: 'constructor', content: {} },
    { msg_type: 'toString', content: {} },
    { msg_type: 'comm_open', content: {} }
  ];
  assert.deepEqual(cellsOf({ outputs: [...wrong, ...outputs] })[0].outputs, outputs);
  assert.deepEqual(cellsOf({ outputs: {}, dropped: 'yes', asks: 1 })[0], cell);
});

test('a cell that waits for input says so, until it has ended', () => {
  const [asking, ended, silent] = [{ asks: 'Name? ' }, { asks: '?' }, {}].map(
    (changes, i) => cellsOf({ status: i === 1 ? 'error' : 'running', ...changes })[0]
  );
  assert.match(questionOf(asking), /waits for an answer to input\(\): “Name\? ”. To end it, interrupt the kernel/);
  assert.deepEqual([questionOf(ended), questionOf(silent)], ['', '']);
  assert.notEqual(questionOf({ ...asking, asks: '' }), '');
});

test('a node is asked only while the link carries the kernel', () => {
  const row = { kernel_id: 'j1', link: 'up' };
  assert.ok(mayAnswer([], 'j1'), 'not known yet');
  assert.ok(mayAnswer([row, { kernel_id: 'j2', link: 'away' }], 'j1'));
  for (const link of ['connecting', 'away', 'taken', 'lost']) {
    assert.ok(!mayAnswer([{ ...row, link }], 'j1'), link);
  }
});
