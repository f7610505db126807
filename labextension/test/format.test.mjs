import assert from 'node:assert/strict';
import { test } from 'node:test';

import { basename, clock, duration, elapsed, gibibytes, memory, roundTrip, share, shortName } from '../lib/format.js';
import { trans } from './trans.mjs';

test('durations have two units at most, and never go backwards', () => {
  const texts = [-5, 59.9, 60, 3599, 3600, 86399, 90000].map(seconds => duration(seconds, trans));
  assert.deepEqual(texts, ['0 s', '59 s', '1 min', '59 min', '1 h 0 min', '23 h 59 min', '1 d 1 h']);
  assert.deepEqual([elapsed(100, 165, trans), elapsed(null, 165, trans), elapsed(undefined, 165, trans)], ['1 min', '', '']);
});

test('times have two digits everywhere', () => {
  const time = new Date(2026, 0, 2, 3, 4, 5).getTime() / 1000;
  assert.deepEqual([clock(time), clock(time, true)], ['03:04', '03:04:05']);
});

test('numbers are short', () => {
  assert.deepEqual([0, 512, 1024, 12288, 81920, 102399, 102400].map(gibibytes), ['0', '0.5', '1', '12', '80', '100', '100']);
  assert.deepEqual([0.2, 3.4, 51, null].map(time => roundTrip(time, trans)), ['< 1 ms', '3 ms', '51 ms', '']);
  assert.deepEqual(
    [memory(512, 24576, trans), memory(0, null, trans), memory(null, 24576, trans)],
    ['0.5 of 24 GiB', '0 GiB', '']
  );
});

test('a share is between nothing and all', () => {
  assert.deepEqual([share(1, 4), share(5, 4), share(-1, 4), share(1, 0), share(null, 4)], [0.25, 1, 0, null, null]);
});

test('names are short, of whatever system', () => {
  assert.equal(shortName('NVIDIA GeForce RTX 3090'), 'RTX 3090');
  assert.deepEqual(['a/b.ipynb', 'C:\\work\\c.ipynb', 'd/', ''].map(basename), ['b.ipynb', 'c.ipynb', 'd', '']);
});
