import assert from 'node:assert/strict';
import { test } from 'node:test';

import { applyAwarenessUpdate, Awareness, encodeAwarenessUpdate, removeAwarenessStates } from 'y-protocols/awareness';
import { Doc } from 'yjs';

import { Pages } from '../lib/outputs/pages.js';

/** A page whose awareness reaches the others as through a server, which passes on what changes. */
class Network {
  all = [];
  made = [];

  add(clientID) {
    const awareness = new Awareness(Object.assign(new Doc(), { clientID }));
    awareness.on('update', ({ added, updated, removed }, origin) => {
      if (origin === 'local') {
        const update = encodeAwarenessUpdate(awareness, [...added, ...updated, ...removed]);
        this.all.filter(other => other !== awareness).forEach(other => applyAwarenessUpdate(other, update, 'remote'));
      }
    });
    this.all.push(awareness);
    this.made.push(awareness);
    const page = { awareness, left: 0 };
    page.pages = new Pages(awareness, () => page.left++);
    return page;
  }

  /** The connection of a page is lost: the others notice it. */
  lose({ awareness }) {
    this.all = this.all.filter(other => other !== awareness);
    this.all.forEach(other => removeAwarenessStates(other, [awareness.clientID], 'timeout'));
  }

  close() {
    this.made.forEach(awareness => awareness.destroy());
  }
}

function withPages(check) {
  const network = new Network();
  try {
    check(network, ...[1, 2, 3].map(id => network.add(id)));
  } finally {
    network.close();
  }
}

test('one page restores an execution, until it releases it', () =>
  withPages((_, { pages: one }, { pages: two }) => {
    assert.ok(two.claim('m') && two.claim('m'));
    assert.ok(!one.claim('m') && one.claim('n'));
    two.release('m');
    assert.ok(one.claim('m') && !two.claim('m'));
  }));

test('a page that comes later learns what the others do', () =>
  withPages((network, { pages: one }) => {
    one.claim('m');
    const four = network.add(4);
    assert.ok(!four.pages.claim('m'));
  }));

test('nobody restores what a page receives', () =>
  withPages((_, { pages: one }, { pages: two }) => {
    one.receive('m', true);
    assert.ok(!two.claim('m'));
    one.receive('m', false);
    assert.ok(two.claim('m'));
  }));

test('of two pages that claim at once one yields', () =>
  withPages((network, one, two) => {
    const both = network.all;
    network.all = [];
    assert.ok(one.pages.claim('m') && two.pages.claim('m'));
    network.all = both;
    [one, two].forEach(({ awareness }) => awareness.setLocalStateField('hello', 1));
    assert.ok(!two.pages.claim('m') && one.pages.claim('m'));
  }));

test('a page that leaves at work is noticed, however it leaves', () =>
  withPages((network, one, two, three) => {
    one.pages.claim('m');
    two.pages.receive('n', true);
    one.pages.dispose();
    assert.deepEqual([two.left, three.left], [1, 1]);
    assert.ok(three.pages.claim('m'));
    network.lose(two);
    assert.equal(three.left, 2);
    assert.ok(three.pages.claim('n'));
  }));

test('a page that leaves idle is of no interest, and what others write in its place is no page', () =>
  withPages((_, one, two) => {
    one.pages.dispose();
    for (const nonsense of [1, 'x', [], { receives: 'm', restores: { m: 1 } }]) {
      one.awareness.setLocalStateField('jupyterGpuKernel', nonsense);
      assert.ok(two.pages.claim('m'));
    }
    assert.equal(two.left, 0);
  }));
