import assert from 'node:assert/strict';
import { test } from 'node:test';

import { memoryParts, pathsOf, usageParts } from '../lib/panel/curve.js';

const BOX = { width: 60, height: 15 };

test('a line from the left to the right, and the area below it', () => {
  const { line, area } = pathsOf([[400, 0], [430, 0.5], [460, 1]], 1000, BOX);
  assert.equal(line, 'M0 14.5L3 7.5L6 0.5');
  assert.equal(area, 'M0 14.5L3 7.5L6 0.5L6 15L0 15Z');
});

test('a gap and an unknown value interrupt the line', () => {
  const { line } = pathsOf([[900, 1], [910, 1], [960, 1], [970, null], [980, 1]], 1000, BOX);
  assert.equal(line.match(/M/g).length, 3);
  assert.ok(line.includes('M56 0.5h0') && line.endsWith('M58 0.5h0'));
});

test('what is older, in the future, or out of range does not leave the box', () => {
  assert.equal(pathsOf([[100, 1], [1200, 1]], 1000, BOX).line, '');
  assert.equal(pathsOf([[990, 7], [1000, -1]], 1000, BOX).line, 'M59 0.5L60 14.5');
  assert.deepEqual(pathsOf([], 1000, BOX), { line: '', area: '' });
});

test('samples as parts of a whole', () => {
  const history = [[1, 512, 50], [2, null, null]];
  assert.deepEqual(memoryParts(history, 1024), [[1, 0.5], [2, null]]);
  assert.deepEqual(memoryParts(history, 0), [[1, null], [2, null]]);
  assert.deepEqual(usageParts(history), [[1, 0.5], [2, null]]);
});
