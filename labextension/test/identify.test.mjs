import assert from 'node:assert/strict';
import { test } from 'node:test';

import { identify } from '../lib/outputs/identify.js';

const text = text => ({ output_type: 'stream', name: 'stdout', text });
const blank = { source: 'f()', executionCount: null, outputs: [], asked: null, live: false, running: false, saved: 0 };
const part = { ...blank, outputs: [text('1\n')] };
const record = {
  msg_id: 'm1',
  cell_id: '',
  session: 's1',
  left: true,
  code: 'f()',
  status: 'running',
  execution_count: 4,
  outputs: [{ msg_type: 'stream', content: { name: 'stdout', text: '1\n2\n' } }]
};
const outputsOf = record => record.outputs.map(({ content }) => ({ ...content, output_type: 'stream' }));

/** [[msg_id, cell] …] that are found, and the msg_ids of doubtful records. */
function found(records, cells, mayFill = () => true, hasRun = () => false) {
  const result = identify(records, new Map(Object.entries(cells)), outputsOf, hasRun, mayFill);
  return [[...result.cells], result.doubtful.map(each => each.msg_id)];
}

test('the only cell with this code that shows a part of this execution', () => {
  assert.deepEqual(found([record], { a: part, b: { ...blank, source: 'g()' } }), [[['m1', 'a']], []]);
  assert.deepEqual(found([record], { a: { ...part, executionCount: 4 } }), [[['m1', 'a']], []]);
  assert.deepEqual(found([record], { a: { ...blank, running: true } }), [[['m1', 'a']], []]);
});

test('a cell that shows nothing of it, or something else', () => {
  assert.deepEqual(found([record], { a: blank }), [[], ['m1']], 'a console may have run the same');
  assert.deepEqual(found([record], { a: { ...part, executionCount: 3 } }), [[], ['m1']]);
  assert.deepEqual(found([record], { a: { ...blank, outputs: [text('other')] } }), [[], ['m1']]);
});

test('a cell that this browser has run', () => {
  assert.deepEqual(found([record], { a: blank }, undefined, id => id === 'a'), [[['m1', 'a']], []]);
  assert.deepEqual(found([record], { a: blank, b: blank }, undefined, id => id === 'a'), [[], ['m1']]);
});

test('two cells with this code', () => {
  assert.deepEqual(found([record], { a: part, b: blank }), [[], ['m1']]);
  assert.deepEqual(found([record], { a: { ...part, executionCount: 4 }, b: blank }), [[], []], 'one of them shows it');
});

test('code that is in no cell is of no interest', () => {
  assert.deepEqual(found([record], { a: { ...part, source: 'g()' } }), [[], []]);
  assert.deepEqual(found([{ ...record, code: ' ' }], { a: { ...blank, source: ' ' } }), [[], []]);
});

test('a blank cell, if another cell shows an execution of the same client', () => {
  const first = { ...record, msg_id: 'm0', code: 'g()', execution_count: 3 };
  const cells = { a: { ...part, source: 'g()', executionCount: 3 }, b: blank };
  assert.deepEqual(found([first, record], cells)[0], [['m0', 'a'], ['m1', 'b']]);
  assert.deepEqual(found([{ ...first, session: 's2' }, record], cells), [[['m0', 'a']], ['m1']]);
  const nobody = { session: '' };
  assert.deepEqual(found([{ ...first, ...nobody }, { ...record, ...nobody }], cells), [[['m0', 'a']], ['m1']]);
});

test('what the server itself writes into the notebook', () => {
  const mayFill = record => record.left;
  assert.deepEqual(found([{ ...record, left: false }], { a: part }, mayFill), [[], []]);
  const later = { ...record, msg_id: 'm2', left: false };
  assert.deepEqual(found([record, later], { a: part }, mayFill), [[], []], 'it was executed again since');
  assert.deepEqual(found([record, { ...later, cell_id: 'a' }], { a: part }, mayFill), [[], []]);
});
