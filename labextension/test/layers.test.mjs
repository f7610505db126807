import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';

const SOURCES = new URL('../src/', import.meta.url);

/** Imports go down; what is in one line knows nothing of the others in it. */
const LAYERS = [
  ['index'],
  ['add', 'links', 'longCells', 'notebook', 'panel', 'running', 'signIn', 'waiting'],
  ['outputs', 'prompts', 'status'],
  ['model'],
  ['confirm', 'format', 'icon', 'notebooks', 'refresher', 'request', 'specs'],
  ['svg.d', 'tokens', 'untrusted']
];

/** [folder (or file at the top), what it imports]. */
async function imports() {
  const found = [];
  for (const name of await readdir(SOURCES, { recursive: true })) {
    if (/\.tsx?$/.test(name)) {
      const text = await readFile(new URL(name, SOURCES), 'utf8');
      const paths = [...text.matchAll(/from '(\.[^']+)'/g)].map(([, path]) => normalize(join(dirname(name), path)));
      found.push(...paths.filter(path => !path.startsWith('..')).map(path => [name, path]));
    }
  }
  return found;
}

const top = path => path.split(/[\\/]/)[0].replace(/\.(js|tsx?)$/, '');
const layer = name => LAYERS.findIndex(names => names.includes(name));

test('imports go down from layer to layer', async () => {
  const all = await imports();
  assert.ok(all.length > 100);
  for (const [from, to] of all) {
    const [above, below] = [top(from), top(to)];
    assert.ok(layer(above) >= 0 && layer(below) >= 0, `${from} imports ${to}: a name without a layer`);
    assert.ok(above === below || layer(above) < layer(below), `${from} imports ${to}`);
  }
});

test('no module imports itself by way of others', async () => {
  const below = new Map();
  for (const [from, to] of await imports()) {
    const name = from.replace(/\.tsx?$/, '');
    below.set(name, [...(below.get(name) ?? []), to.replace(/\.js$/, '')]);
  }
  const done = new Set();
  const visit = (name, path) => {
    assert.ok(!path.includes(name), [...path, name].join(' → '));
    if (!done.has(name)) {
      (below.get(name) ?? []).forEach(next => visit(next, [...path, name]));
      done.add(name);
    }
  };
  [...below.keys()].forEach(name => visit(name, []));
});
