import assert from 'node:assert/strict';
import { test } from 'node:test';

import { hasEnded, Records } from '../lib/outputs/journal.js';
import { changeOf, hasGap, isBehind } from '../lib/outputs/rule.js';

const text = (text, name = 'stdout') => ({ output_type: 'stream', name, text });
const plot = { output_type: 'display_data', data: { 'image/png': 'aaaa' }, metadata: {} };
const whole = [text('1\n2\n'), plot, text('3\n')];

const record = {
  msg_id: 'm1',
  cell_id: 'c1',
  code: 'f()',
  status: 'ok',
  execution_count: 4,
  started: 1000,
  finished: 1010,
  dropped: false,
  outputs: []
};
const running = { ...record, status: 'running', finished: null };
/** A cell after the page was loaded anew, saved after the record's end. */
const cell = { source: 'f()', executionCount: null, outputs: [], asked: null, live: false, running: false, saved: 2000 };

const anew = { clear: true, set: [], addFrom: 0 };

const behind = (changes, ofRecord = record) => isBehind({ ...cell, ...changes }, ofRecord, whole);

test('a cell without a number was saved in mid-execution', () => {
  assert.ok(behind({}));
  assert.ok(behind({ outputs: [text('1\n')] }));
  assert.ok(behind({ outputs: [text('50 %')] }), 'progress is no beginning of what it becomes');
  assert.ok(behind({}, running));
});

test('what is shown is not replaced by less', () => {
  const dropped = { ...record, dropped: true };
  assert.ok(behind({}, dropped));
  assert.ok(!behind({ outputs: [text('1\n')] }, dropped));
});

test('a cell with the number of the record saw its end', () => {
  assert.ok(!behind({ executionCount: 4, outputs: [text('something else')] }));
  assert.ok(!behind({ executionCount: 4, outputs: [plot, text('1\n2\n')] }));
});

test('what was printed after the end is added', () => {
  assert.ok(behind({ executionCount: 4, outputs: [] }));
  assert.ok(behind({ executionCount: 4, outputs: [text('1\n')] }));
  assert.ok(behind({ executionCount: 4, outputs: whole.slice(0, 2) }));
  assert.ok(!behind({ executionCount: 4, outputs: [text('1\n'), plot] }), 'only the last text may grow');
  assert.ok(!behind({ executionCount: 4, outputs: [text('1\n', 'stderr')] }));
  assert.ok(!behind({ executionCount: 4, outputs: [...whole, plot] }));
});

test('what was lost in between is restored if this page has executed the cell', () => {
  const lost = { executionCount: 4, outputs: [whole[0], whole[2], plot], asked: 'm1' };
  assert.ok(behind(lost));
  assert.ok(!behind({ ...lost, asked: null }), 'the user may have changed the outputs');
  assert.ok(!behind(lost, { ...record, dropped: true }));
  assert.ok(!behind({ ...lost, executionCount: 5 }));
});

test('outputs of an earlier run, not saved since, are replaced', () => {
  const old = { outputs: [text('old')], saved: 900 };
  for (const executionCount of [1, 4, 70]) {
    assert.ok(behind({ ...old, executionCount }));
    assert.ok(behind({ ...old, executionCount }, running));
  }
});

test('outputs of another kernel, saved later, stay', () => {
  assert.ok(!behind({ executionCount: 9, outputs: [text('newer')] }));
  assert.ok(!behind({ executionCount: 9 }, { ...record, status: 'aborted', finished: null }));
});

test('an edited cell is left alone', () => {
  assert.ok(!behind({ source: 'f(2)' }));
});

test('what the page executes is left alone', () => {
  assert.ok(!behind({ asked: 'm1', live: true }));
  assert.ok(!behind({ asked: 'm2', live: true }));
  assert.ok(!behind({ asked: 'm2' }), 'it asked for another execution since');
  assert.ok(behind({ asked: 'm1' }), 'it no longer hears of its own');
});

test('the change keeps what is shown already', () => {
  for (const shared of [false, true]) {
    assert.equal(changeOf(whole, structuredClone(whole), shared), null);
    assert.deepEqual(changeOf([], whole, shared), { clear: false, set: [], addFrom: 0 });
    assert.deepEqual(changeOf([text('1\n2\n'), plot, text('')], whole, shared), { clear: false, set: [2], addFrom: 3 });
    assert.deepEqual(changeOf([text('1\n')], whole, shared), { clear: false, set: [0], addFrom: 1 });
    assert.deepEqual(changeOf([...whole, plot], whole, shared), anew);
    assert.deepEqual(changeOf([plot], whole, shared), anew, 'a plot cannot become a text');
    assert.deepEqual(changeOf([text('1\n2\n', 'stderr')], whole, shared), anew);
  }
});

test('in a shared notebook only the last output can be replaced', () => {
  const other = { ...plot, data: {} };
  const wanted = [plot, plot, plot];
  assert.deepEqual(changeOf([plot, other], wanted, true), { clear: false, set: [1], addFrom: 2 });
  assert.deepEqual(changeOf([other, plot], wanted, true), anew);
  assert.deepEqual(changeOf([other, plot], wanted, false), { clear: false, set: [0], addFrom: 2 });
});

test('the last execution of a cell counts, in the order of the first look', () => {
  const records = new Records();
  const again = { ...running, msg_id: 'm2' };
  records.add([record, again, { ...record, msg_id: 'm3', cell_id: 'c2' }]);
  records.add([{ ...record, execution_count: 5 }]);
  assert.equal(records.of('c1'), again);
  assert.equal(records.get('m1').execution_count, 5);
  assert.equal(records.of('c3'), undefined);
});

test('waiting and running is not the end', () => {
  const ended = ['waiting', 'running', 'ok', 'error', 'aborted'].filter(status => hasEnded({ status }));
  assert.deepEqual(ended, ['ok', 'error', 'aborted']);
});

test('a notebook that was saved when its cell ended is not older than that', () => {
  const rerun = { executionCount: 3, outputs: [text('old\n')] };
  assert.ok(behind({ ...rerun, saved: record.finished - 0.001 }));
  assert.ok(!behind({ ...rerun, saved: record.finished }));
});

test('a cell that receives its messages has a gap if it shows anything but a beginning, or more', () => {
  assert.ok(!hasGap([], whole));
  assert.ok(!hasGap([text('1\n')], whole), 'the rest is on its way');
  assert.ok(!hasGap([...whole, text('4\n', 'stderr')], whole), 'more arrived since the node was asked');
  assert.ok(!hasGap([text('1\n2\n'), plot, text('3\n4\n')], whole));
  assert.ok(hasGap([text('1\n3\n')], whole));
  assert.ok(hasGap([text('1\n2\n'), text('3\n')], whole), 'without the plot');
});
