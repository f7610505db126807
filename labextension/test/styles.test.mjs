// The style sheets: each belongs to one part of the page.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

const FOLDER = new URL('../style/', import.meta.url);

test('no class is styled by two parts of the page', () => {
  const homes = new Map();
  for (const file of readdirSync(FOLDER).filter(name => name.endsWith('.css'))) {
    const classes = readFileSync(new URL(file, FOLDER), 'utf8').match(/jp-RemoteGPU-\w+/g) ?? [];
    new Set(classes).forEach(name => homes.set(name, [...(homes.get(name) ?? []), file]));
  }
  const shared = [...homes].filter(([, files]) => files.length > 1);
  assert.deepEqual(shared, []);
});
