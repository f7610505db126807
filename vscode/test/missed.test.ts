import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';

import { Documents } from '../src/documents.js';
import type { Hub } from '../src/hub/hub.js';
import { Missed, missedIn } from '../src/missed.js';
import type { Model } from '../src/model.js';
import type { IRecord } from '../src/shared/words.js';
import { kernel, notebook, NOW } from './rows.js';
import { EventEmitter, NotebookCellOutput, NotebookCellOutputItem, Uri, until, user, window, workspace } from './vscode.js';

const stream = (text: string): object => ({ msg_type: 'stream', content: { name: 'stdout', text } });

const record = {
  msg_id: 'm1',
  cell_id: 'vscode-notebook-cell:/w/a.ipynb#1',
  session: 's',
  left: true,
  code: 'f()',
  status: 'ok',
  execution_count: 3,
  started: NOW,
  finished: NOW + 60,
  dropped: false,
  asks: null,
  outputs: [stream('0\n1\n2\n')]
};

const recorded = (changes: object = {}): IRecord => ({ ...record, ...changes }) as IRecord;

function cell(code: string, shown = '', number = 1): never {
  const outputs = shown ? [new NotebookCellOutput([NotebookCellOutputItem.stdout(shown)])] : [];
  const uri = Uri.parse(`vscode-notebook-cell:/w/a.ipynb#${number}`);
  const document = { getText: () => code, uri, languageId: 'python' };
  return { document, outputs, index: number, kind: 2, metadata: { id: 'c' }, notebook } as never;
}

test('a cell has missed output if its front end has left and it shows something else', () => {
  const half = cell('f()', '0\n');
  const missed = (cells: never[], ...records: IRecord[]): number => missedIn(cells, records).length;
  assert.equal(missed([half], recorded()), 1);
  assert.equal(missed([cell('f()', '0\n1\n2\n')], recorded()), 0);
  assert.equal(missed([half], recorded({ left: false })), 0);
  assert.equal(missed([half], recorded({ finished: null, status: 'running' })), 0);
  assert.equal(missed([cell('g()')], recorded()), 0, 'the user has changed the code');
  assert.equal(missed([half], recorded(), recorded({ left: false, outputs: [stream('0\n')] })), 0, 'it ran again here');
});

test('a cell that shows the error with which it ended has missed nothing', () => {
  const error = { msg_type: 'error', content: { ename: 'KeyError', evalue: "'x'", traceback: ['t'] } };
  const item = NotebookCellOutputItem.error({ name: 'KeyError', message: "'x'", stack: 't' });
  const shows = (...items: NotebookCellOutputItem[]): never => {
    const outputs = items.map(one => new NotebookCellOutput([one]));
    return { ...(cell('f()', '0\n1\n2\n') as object), outputs } as never;
  };
  const ended = recorded({ status: 'error', outputs: [...record.outputs, error] });
  const all = NotebookCellOutputItem.stdout('0\n1\n2\n');
  assert.deepEqual([[all, item], [all]].map(items => missedIn([shows(...items)], [ended]).length), [0, 1]);
});

test('of cells with the same code the one with the id is meant, or none', () => {
  const [first, second] = [cell('f()', '', 7), cell('f()', '', 1)];
  assert.deepEqual(missedIn([first, second], [recorded()]).map(one => one.cell), [second]);
  assert.deepEqual(missedIn([first, second], [recorded({ cell_id: '' })]), []);
});

const changed = new EventEmitter<void>();
const asked: unknown[] = [];
let records: object[] = [];
const hub = {
  call: async (op: string, values: object) => {
    asked.push([op, values]);
    return { kernel: 'k1', cells: records };
  }
} as unknown as Hub;
const model = { changed: changed.event, kernels: [kernel()] } as unknown as Model;
const documents = new Documents();
const open: { dispose(): void }[] = [documents];

afterEach(() => {
  user.messages.length = user.edits.length = user.documents.length = asked.length = 0;
});

function missedOf(...cells: never[]): Missed {
  const own = { ...notebook, getCells: () => cells };
  workspace.notebookDocuments = [own];
  const missed = new Missed(hub, model, documents);
  open.push(missed);
  return missed;
}

test('what was missed is told once, and put into the cell: text and pictures, no HTML', async () => {
  const png = { msg_type: 'display_data', content: { data: { 'image/png': 'AAAA', 'text/html': '<script>', 'text/plain': 'F' }, metadata: {} } };
  const html = { msg_type: 'display_data', content: { data: { 'text/html': '<script>' }, metadata: {} } };
  const error = { msg_type: 'error', content: { ename: 'E', evalue: 'v', traceback: ['t'] } };
  records = [{ ...record, outputs: [...record.outputs, png, html, error] }];
  const missed = missedOf(cell('f()', '0\n'));
  user.presses.push('Show in the Cells');
  changed.fire();
  await until(() => user.edits.length === 1);
  changed.fire();
  assert.deepEqual(asked, [['journal', { kernel: 'k1' }]]);
  assert.deepEqual(user.messages, ['A cell ended while its window was gone.']);
  const { range, newCells } = user.edits[0]!;
  assert.deepEqual([range.start, range.end, newCells[0]!.value], [1, 2, 'f()']);
  assert.deepEqual(newCells[0]!.outputs.map(output => output.items.map(item => item.mime)), [
    ['application/vnd.code.notebook.stdout'],
    ['image/png', 'text/plain'],
    ['application/vnd.code.notebook.error']
  ]);
  assert.deepEqual(newCells[0]!.metadata, { id: 'c', execution_count: 3 });
  missed.dispose();
});

test('what was missed is shown as text where the user wants that', async () => {
  records = [record];
  const missed = missedOf(cell('f()', '0\n'));
  user.presses.push('Show as Text');
  changed.fire();
  await until(() => user.documents.length === 1);
  assert.match(user.documents[0]!.text, /^\[3\] ok ended at .*\n {4}f\(\)\n0\n1\n2\n$/);
  missed.dispose();
});

test('the cell has a button, and other cells have none', async () => {
  records = [record];
  const [own, other] = [cell('f()'), cell('h()', '', 2)];
  const missed = missedOf(own, other);
  changed.fire();
  await until(() => user.messages.length === 1);
  assert.equal(missed.provideCellStatusBarItems(own)!.text, '$(history) Show what was missed');
  assert.equal(missed.provideCellStatusBarItems(other), undefined);
  await missed.show(own);
  assert.equal(user.edits.length, 1);
  assert.equal(missed.provideCellStatusBarItems(own), undefined);
  window.activeNotebookEditor = undefined;
  await missed.show(undefined);
  assert.match(user.messages[1]!, /^No cell/);
  open.forEach(one => one.dispose());
});
