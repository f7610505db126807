import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Playback } from '../lib/outputs/playback.js';
import { Outputs } from './parts.mjs';

const text = (text, name = 'stdout') => ({ msg_type: 'stream', content: { name, text } });
const display = (id, data, msg_type = 'display_data') => ({
  msg_type,
  content: { data: { 'text/plain': data }, metadata: {}, transient: id ? { display_id: id } : {} }
});
const update = (id, data) => display(id, data, 'update_display_data');
const clear = wait => ({ msg_type: 'clear_output', content: { wait } });
const record = (msg_id, ...outputs) => ({ msg_id, cell_id: msg_id, outputs });

/** What is shown in the end, in short. */
const shown = (playback, msgId) =>
  playback.outputsOf(msgId).map(each => each.text ?? each.data['text/plain']);

function play(...records) {
  const playback = new Playback(() => new Outputs());
  records.forEach(each => playback.play(each));
  return playback;
}

test('outputs come in order, of their kinds', () => {
  const error = { msg_type: 'error', content: { ename: 'E', evalue: 'v', traceback: [] } };
  const result = { msg_type: 'execute_result', content: { data: {}, metadata: {}, execution_count: 3 } };
  assert.deepEqual(play(record('a', text('1\n'), text('2', 'stderr'), result, error)).outputsOf('a'), [
    { output_type: 'stream', name: 'stdout', text: '1\n' },
    { output_type: 'stream', name: 'stderr', text: '2' },
    { output_type: 'execute_result', data: {}, metadata: {}, execution_count: 3 },
    { output_type: 'error', ename: 'E', evalue: 'v', traceback: [] }
  ]);
});

test('an update replaces every display with its id', () => {
  const playback = play(record('a', display('x', '0'), text('t'), display('x', '1'), update('x', '2')));
  assert.deepEqual(shown(playback, 'a'), ['2', 't', '2']);
});

test('a display with a known id is an update, too', () => {
  assert.deepEqual(shown(play(record('a', display('x', '0'), display('x', '1'))), 'a'), ['1', '1']);
});

test('an update reaches the display of an earlier cell, and says so', () => {
  const playback = play(record('a', display('x', '0')), record('b', text('-')));
  assert.deepEqual([...playback.play(record('b', text('-'), update('x', '1')))].sort(), ['a', 'b']);
  assert.deepEqual([shown(playback, 'a'), shown(playback, 'b')], [['1'], ['-']]);
});

test('an update of what was never shown is nothing', () => {
  assert.deepEqual(shown(play(record('a', update('x', '1'), display(undefined, '2'))), 'a'), ['2']);
});

test('clear_output clears at once, or when the next output comes', () => {
  assert.deepEqual(shown(play(record('a', text('1'), clear(false), text('2'))), 'a'), ['2']);
  assert.deepEqual(shown(play(record('a', text('1'), clear(true), text('2'))), 'a'), ['2']);
  assert.deepEqual(shown(play(record('a', text('1'), clear(true))), 'a'), ['1']);
});

test('an update is no next output, and finds nothing after a clear', () => {
  const playback = play(record('a', display('x', '0'), clear(true), update('x', '1')));
  assert.deepEqual(shown(playback, 'a'), ['1']);
  const cleared = play(record('a', display('x', '0'), clear(true), text('t'), update('x', '1')));
  assert.deepEqual(shown(cleared, 'a'), ['t']);
});

test('it is said where something is missing', () => {
  const playback = play({ ...record('a', text('end')), dropped: true });
  assert.deepEqual(shown(playback, 'a'), ['[The first part of this output was too large to keep.]\n', 'end']);
});

test('a record that has grown is played in place of its earlier state', () => {
  const playback = play(record('a', text('1')), record('a', text('12')));
  assert.deepEqual(shown(playback, 'a'), ['12']);
  assert.deepEqual(shown(playback, 'unknown'), []);
});
