import assert from 'node:assert/strict';
import { test } from 'node:test';

import { argumentsOf, ownCommands } from '../lib/links/commands.js';

const stop = 'jupyter-gpu-kernel:stop';

test('a command of ours is found by itself and among the arguments of others', () => {
  const found = (command, args) => ownCommands(command, argumentsOf(JSON.stringify(args)));
  assert.deepEqual(found(stop, { id: 'x' }), [stop]);
  assert.deepEqual(found('apputils:run-first-enabled', { commands: ['docmanager:save', stop], args: {} }), [stop]);
  const nested = { commands: ['apputils:run-all-enabled'], args: [{ commands: [stop, stop] }] };
  assert.deepEqual(found('apputils:run-first-enabled', nested), [stop]);
  assert.deepEqual(found('apputils:run-first-enabled', { commands: ['docmanager:save'], args: null }), []);
  assert.deepEqual(found('docmanager:open', { path: `notes on ${stop}` }), []);
});

test('arguments that are nested deeper than the stack hide nothing, and what is no JSON does nothing', () => {
  const depth = 50000;
  const args = argumentsOf(`{"a": ${'['.repeat(depth)}${']'.repeat(depth)}, "commands": ["${stop}"]}`);
  assert.deepEqual(ownCommands('apputils:run-first-enabled', args), [stop]);
  assert.deepEqual(argumentsOf('"jupyter-gpu-kernel\\u003astop"'), stop);
  assert.equal(argumentsOf('{'), null);
  assert.deepEqual(ownCommands(stop, argumentsOf('{')), []);
});
