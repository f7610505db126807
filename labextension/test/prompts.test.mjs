import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parsePrompts, textsOf } from '../lib/prompts/prompt.js';
import { PromptQueue } from '../lib/prompts/queue.js';
import { line } from '../lib/untrusted.js';
import { trans } from './trans.mjs';

const id = digit => String(digit).repeat(32);
const raw = {
  id: id(1),
  hop: 'login',
  kind: 'password',
  prompt: 'Password of alice: ',
  again: false,
  fingerprint: '',
  key_type: '',
  saveable: true,
  for: { what: 'kernel', name: 'gpu2', notebook: 'work/train.ipynb' }
};
const [prompt] = parsePrompts([raw]);

test('a question is read as the server sends it, and what is none is left out', () => {
  assert.equal(prompt.prompt, 'Password of alice:');
  assert.ok(prompt.saveable && !prompt.again);
  assert.deepEqual(prompt.waits, raw.for);
  for (const wrong of [null, 1, [], {}, { ...raw, id: '../kernels' }, { ...raw, kind: 'script' }, { ...raw, id: 5 }]) {
    assert.deepEqual(parsePrompts([wrong, raw]), [prompt]);
  }
  assert.deepEqual(parsePrompts({ 0: raw }), []);
  const { hop, waits } = parsePrompts([{ id: id(2), kind: 'code', hop: 5, for: 'x' }])[0];
  assert.deepEqual([hop, waits], ['', { what: '', name: '', notebook: '' }]);
});

test('the words of a machine are one line of bounded length that changes nothing around it', () => {
  assert.equal(line('a\r\n\tb\u001b[2J \u202egpj.exe', 100), 'a b?[2J ?gpj.exe');
  assert.equal(line('x'.repeat(5000), 10), 'xxxxxxxxx…');
  assert.equal(line({}, 10), '');
  const words = parsePrompts([{ ...raw, prompt: '<img src=x onerror=alert(1)>'.repeat(1000) }])[0].prompt;
  assert.equal(words.length, 600);
});

test('each kind of question says who asks, for what, and whether the last answer was wrong', () => {
  const texts = changes => textsOf({ ...prompt, ...changes }, trans);
  const { keyring, ...shown } = texts({});
  assert.match(keyring, /“jupyter gpu-kernel login gpu2 --forget”/);
  assert.deepEqual(shown, {
    title: 'Sign in to login',
    question: 'login asks for your password.',
    purpose: 'The kernel “gpu2” of work/train.ipynb waits for it.',
    label: 'Password',
    accept: 'Sign In'
  });
  for (const kind of ['password', 'passphrase', 'code', 'pin', 'text']) {
    assert.notEqual(texts({ kind }).question, texts({ kind, again: true }).question);
  }
  assert.equal(texts({ kind: 'host' }).accept, 'Accept Key');
  assert.equal(texts({ waits: { what: 'login', name: 'gpu2', notebook: '' } }).purpose, 'You sign in to “gpu2”.');
});

/** A server with questions, and a screen with one dialog at most. */
class Page {
  constructor() {
    this.waiting = [];
    this.log = [];
    this.rejects = '';
    this.dialog = null;
    this.queue = new PromptQueue({
      fetch: async () => this.waiting,
      show: (shown, problem) => {
        assert.equal(this.dialog, null, 'one at a time');
        const dialog = { prompt: shown, problem, counted: '' };
        this.dialog = dialog;
        this.log.push(`shows ${shown.id[0]}`);
        return {
          reply: new Promise(resolve => (dialog.resolve = resolve)).finally(() => (this.dialog = null)),
          count: (position, total) => (dialog.counted = `${position} of ${total}`),
          close: () => {
            this.log.push(`closes ${shown.id[0]}`);
            this.dialog = null;
            dialog.resolve(undefined);
          }
        };
      },
      send: async ({ id }, reply) => {
        this.log.push(reply ? `answers ${id[0]} ${reply.answer}` : `cancels ${id[0]}`);
        const rejects = this.rejects;
        this.rejects = '';
        this.waiting = rejects ? this.waiting : this.waiting.filter(each => each.id !== id);
        return rejects;
      }
    });
  }

  async reply(reply) {
    this.dialog.resolve(reply);
    await new Promise(done => setTimeout(done));
  }

  asks(...digits) {
    this.waiting = digits.map(digit => ({ ...prompt, id: id(digit) }));
    return this.queue.refresh();
  }
}

test('several questions are shown one at a time, and counted', async () => {
  const page = new Page();
  await page.asks(1);
  assert.equal(page.dialog.counted, '1 of 1');
  await page.asks(1, 2, 3);
  assert.equal(page.dialog.counted, '1 of 3');
  await page.reply({ answer: 'sesame', save: false });
  assert.equal(page.dialog.counted, '2 of 3');
  await page.reply(null);
  await page.reply({ answer: '123456', save: false });
  assert.deepEqual(page.log, ['shows 1', 'answers 1 sesame', 'shows 2', 'cancels 2', 'shows 3', 'answers 3 123456']);
  assert.equal(page.dialog, null);
  await page.asks(4);
  assert.equal(page.dialog.counted, '1 of 1');
});

test('a question that was answered in another page is closed without a reply', async () => {
  const page = new Page();
  await page.asks(1, 2);
  await page.asks(2);
  await page.asks();
  assert.deepEqual(page.log, ['shows 1', 'closes 1', 'shows 2', 'closes 2']);
});

test('an answer that cannot be right is asked for again, with the reason', async () => {
  const page = new Page();
  await page.asks(1);
  page.rejects = 'The fingerprint does not end with that.';
  await page.reply({ answer: 'yes', save: false });
  assert.equal(page.dialog.problem, 'The fingerprint does not end with that.');
  await page.reply({ answer: 'wXyZ', save: false });
  assert.deepEqual(page.log, ['shows 1', 'answers 1 yes', 'shows 1', 'answers 1 wXyZ']);
});

test('events during a request lead to one more request', async () => {
  let requests = 0;
  const queue = new PromptQueue({
    fetch: async () => {
      requests += 1;
      await new Promise(done => setTimeout(done));
      return [];
    }
  });
  await Promise.all([queue.refresh(), queue.refresh(), queue.refresh()]);
  assert.equal(requests, 2);
});
