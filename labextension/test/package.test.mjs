// JupyterLab disables an extension as a whole if one package that it shares is older than the extension asks for.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

/** What JupyterLab 4.2.0 has, where the number is not 4.2.0. */
const NUMBERS = { '@jupyterlab/apputils': '4.3.0', '@jupyterlab/coreutils': '6.2.0', '@jupyterlab/services': '7.2.0' };

test('JupyterLab 4.2.0 has what the extension asks for', () => {
  const { dependencies } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const shared = Object.entries(dependencies).filter(([name]) => name.startsWith('@jupyterlab/'));
  assert(shared.length > 0);
  for (const [name, range] of shared) {
    assert.equal(range, `^${NUMBERS[name] ?? '4.2.0'}`, name);
  }
});
