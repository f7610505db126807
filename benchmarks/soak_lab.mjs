/**
 * A real browser with JupyterLab, for soak_lab.py: one JSON command per line on stdin, one JSON answer per line.
 *
 * Needs the npm package playwright-core (in NODE_PATH) and a Chromium (CHROMIUM, else /usr/bin/chromium).
 */
import { mkdtempSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const { chromium } = createRequire(import.meta.url)('playwright-core');
const flags = ['no-sandbox', 'disable-gpu', 'disable-quic', 'no-first-run', 'disable-background-networking'];
const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), 'soak-')), {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  headless: true,
  args: [...flags, 'disable-component-update', 'disable-sync'].map(flag => `--${flag}`),
  viewport: { width: 1300, height: 900 }
});
let page = browser.pages()[0] ?? (await browser.newPage());
page.setDefaultTimeout(90000);
page.on('dialog', dialog => void dialog.accept()); // “Leave this page?”
page.on('pageerror', error => console.error(String(error)));
page.on('console', message => message.text().includes('jupyter-gpu-kernel') && console.error(message.text()));

const connected = () => {
  const panel = globalThis.jupyterapp?.shell.currentWidget;
  return panel?.context?.isReady && panel.sessionContext?.session?.kernel?.connectionStatus === 'connected';
};
const states = () =>
  [...jupyterapp.shell.currentWidget.content.model.cells].map(cell => ({
    id: cell.id,
    state: cell.executionState,
    count: cell.executionCount,
    outputs: cell.outputs?.toJSON()
  }));

const commands = {
  open: async ({ url }) => {
    await page.goto(url);
    await page.waitForFunction(connected);
  },
  reload: async () => {
    await page.reload();
    await page.waitForFunction(connected);
  },
  run: () => page.evaluate(() => void jupyterapp.commands.execute('notebook:run-all-cells')),
  command: ({ id }) => page.evaluate(each => jupyterapp.commands.execute(each).then(() => null), id),
  cells: () => page.evaluate(states),
  evaluate: ({ code }) => page.evaluate(code),
  /** Answers an input(), if one is asked: each once, in one go, as its box stays for half a second. */
  answer: ({ text }) =>
    page.evaluate(value => {
      const boxes = document.querySelectorAll('.jp-Stdin-input:not([data-answered])');
      for (const box of boxes) {
        box.dataset.answered = 'yes';
        box.value = value;
        box.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
      }
      return boxes.length;
    }, text),
  picture: ({ path }) => page.screenshot({ path }).then(() => null)
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...more } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ result: (await commands[name](more)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
await browser.close();
