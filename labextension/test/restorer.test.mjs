import assert from 'node:assert/strict';
import { register } from 'node:module';
import { after, test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { openPage, Outputs } from './parts.mjs';

register('./hooks.mjs', import.meta.url);
const { Restorer } = await import('../lib/outputs/restorer.js');
openPage();

const NUMBER = 4;
const ENDED = 1010;
const text = (text, name = 'stdout') => ({ output_type: 'stream', name, text });
const lines = (...names) => names.map((name, i) => text(`${name}\n`, i % 2 ? 'stderr' : 'stdout'));
const whole = lines('one', 'two', 'three');
const withGap = [whole[0], text('three\n', 'stdout2')];
const messages = outputs => outputs.map(({ output_type, ...content }) => ({ msg_type: output_type, content }));

const ended = {
  msg_id: 'm1',
  cell_id: 'c1',
  session: 's',
  left: false,
  code: 'f()',
  status: 'ok',
  execution_count: NUMBER,
  started: 1000,
  finished: ENDED,
  dropped: false,
  asks: null,
  outputs: messages(whole)
};
const running = { ...ended, status: 'running', finished: null, outputs: messages(whole.slice(0, 2)) };

class Ids extends Set {
  add(id) {
    return super.add(id);
  }
}

/** A notebook of one cell, which this page has executed, and the journals that its restorer requests. */
class Page {
  constructor({ outputs, saved = 0 }) {
    this.asked = [];
    this.arrived = [];
    this.kernel = { id: 'j1', name: 'gpu2', connectionStatus: 'connected', anyMessage: new Signal({}) };
    this.future = { msg: { header: { msg_id: 'm1' } }, isDisposed: false };
    this.cell = this.#newCell(outputs);
    const sessionContext = { session: { kernel: this.kernel } };
    for (const name of ['kernelChanged', 'connectionStatusChanged', 'statusChanged']) {
      sessionContext[name] = new Signal(sessionContext);
    }
    this.sessionContext = sessionContext;
    const model = { collaborative: false, sharedModel: { awareness: this.#newAwareness() } };
    this.panel = {
      sessionContext,
      context: { sessionContext, model, contentsModel: { last_modified: new Date(saved * 1000).toISOString() } },
      content: { model, widgets: [this.cell] },
      disposed: new Signal({})
    };
    this.restorer = new Restorer({
      panel: this.panel,
      isOurs: () => true,
      source: { mayAnswer: () => true, fetch: (_, cellId) => this.#request(cellId) },
      dismissed: new Ids(),
      trustsNone: () => false,
      executed: new Ids(['c1 m1']),
      hasRun: new Ids(),
      onDoubt: () => undefined
    });
    after(() => this.restorer.dispose());
  }

  #newCell(outputs) {
    const list = new Outputs();
    outputs.forEach(output => list.add(output));
    return {
      model: {
        id: 'c1',
        type: 'code',
        executionCount: null,
        executionState: 'running',
        outputs: list,
        sharedModel: { getSource: () => 'f()' },
        getMetadata: () => undefined,
        trusted: true
      },
      outputArea: { future: this.future },
      layout: { widgets: [], addWidget: () => undefined }
    };
  }

  /** There is another page, which has executed something else. */
  #newAwareness() {
    this.states = new Map([[2, { jupyterGpuKernel: { receives: ['m2'], restores: [] } }]]);
    return {
      clientID: 1,
      getStates: () => this.states,
      setLocalStateField: () => undefined,
      on: (_, listener) => (this.changed = listener),
      off: () => undefined
    };
  }

  /** The other page leaves. */
  loseOther() {
    this.states.clear();
    this.changed({ added: [], updated: [], removed: [2] });
  }

  #request(cellId) {
    return new Promise(resolve => {
      this.asked.push({ cellId, reply: cells => resolve({ kernel: 'k1', cells }) });
      this.arrived.splice(0).forEach(arrived => arrived());
    });
  }

  /** The request with this number, counted from 0, when it has been made. */
  async request(number) {
    while (this.asked.length <= number) {
      await new Promise(resolve => this.arrived.push(resolve));
    }
    return this.asked[number];
  }

  /** The page receives the end of the cell's execution. */
  end() {
    this.cell.model.executionCount = NUMBER;
    this.cell.model.executionState = 'idle';
    this.future.isDisposed = true;
  }

  /** The messages to an `Output` widget begin: the kernel's comm says whose outputs it shows. */
  moveOutputs() {
    const msg = { header: { msg_type: 'comm_msg' }, parent_header: {}, content: { data: { state: { msg_id: 'm1' } } } };
    this.kernel.anyMessage.emit({ msg, direction: 'recv' });
  }

  get shown() {
    return this.cell.model.outputs.toJSON();
  }
}

const settled = () => new Promise(setImmediate);

test('a cell that ends before the first journal comes gets what it has missed', async () => {
  const page = new Page({ outputs: withGap });
  const first = await page.request(0);
  page.end();
  first.reply([running]);
  await settled();
  assert.deepEqual(page.shown, withGap, 'the journal is older than the cell');
  const second = await page.request(1);
  assert.equal(second.cellId, 'c1');
  second.reply([ended]);
  await settled();
  assert.deepEqual([page.shown, page.cell.model.executionCount], [whole, NUMBER]);
});

test('outputs that were lost in between are restored also after the notebook was saved', async () => {
  const page = new Page({ outputs: withGap, saved: ENDED + 1 });
  page.end();
  (await page.request(0)).reply([ended]);
  await settled();
  assert.deepEqual(page.shown, whole);
});

for (const saved of [0, ENDED + 1]) {
  test(`a cell that has received all is not replaced by what the journal has kept of it (saved at ${saved})`, async () => {
    const page = new Page({ outputs: whole, saved });
    page.end();
    (await page.request(0)).reply([{ ...ended, dropped: true, outputs: messages(whole.slice(2)) }]);
    await settled();
    assert.deepEqual(page.shown, whole);
  });

  test(`nor by what a widget shows of its outputs (saved at ${saved})`, async () => {
    const page = new Page({ outputs: whole.slice(2), saved });
    page.moveOutputs();
    page.end();
    (await page.request(0)).reply([ended]);
    await settled();
    assert.deepEqual(page.shown, whole.slice(2));
  });
}

test('after a new connection only the journal that was requested over it is used', async () => {
  const page = new Page({ outputs: [] });
  const first = await page.request(0);
  page.sessionContext.connectionStatusChanged.emit('connected');
  const second = await page.request(1);
  page.end();
  first.reply([ended]);
  await settled();
  assert.deepEqual(page.shown, []);
  second.reply([ended]);
  await settled();
  assert.deepEqual(page.shown, whole);
});

test('a journal that comes after the connection was lost is not used', async () => {
  const page = new Page({ outputs: withGap });
  const first = await page.request(0);
  page.kernel.connectionStatus = 'connecting';
  page.sessionContext.connectionStatusChanged.emit('connecting');
  page.end();
  first.reply([ended]);
  await settled();
  assert.deepEqual(page.shown, withGap);
});

test('when another page has left only the journal that was requested then is used', async () => {
  const page = new Page({ outputs: [] });
  const first = await page.request(0);
  page.loseOther();
  const second = await page.request(1);
  page.end();
  first.reply([ended]);
  await settled();
  assert.deepEqual(page.shown, []);
  second.reply([ended]);
  await settled();
  assert.deepEqual(page.shown, whole);
});
