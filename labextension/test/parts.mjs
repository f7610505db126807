/** What our modules use of JupyterLab's packages that need a browser, without the browser. */
import { Signal } from '@lumino/signaling';

/** A list of outputs as JupyterLab's, without carriage returns. */
export class Outputs {
  list = [];

  get length() {
    return this.list.length;
  }

  add(output) {
    const last = this.list.at(-1);
    if (last && output.output_type === 'stream' && last.name === output.name) {
      last.text += output.text;
    } else {
      this.list.push({ ...output });
    }
    return this.length;
  }

  get(index) {
    return { ...this.list[index] };
  }

  set(index, output) {
    this.list[index] = output;
  }

  clear() {
    this.list = [];
  }

  toJSON() {
    return this.list.map(({ transient, ...output }) => output);
  }
}

export const CodeCellModel = { defaultContentFactory: { createOutputArea: () => new Outputs() } };

export const NotebookActions = { outputCleared: new Signal({}), executionScheduled: new Signal({}) };

/** A node of the page: only its text. */
class Element {
  textContent = '';

  setAttribute() {}

  addEventListener() {}

  append(...nodes) {
    this.nodes = nodes;
  }
}

export class Widget {
  node = new Element();

  addClass() {}

  hasClass() {
    return false;
  }

  dispose() {
    this.isDisposed = true;
  }
}

/** From now on there is a page: packages that were imported before have found none. */
export function openPage() {
  globalThis.window = new EventTarget();
  globalThis.document = { createElement: () => new Element() };
}
