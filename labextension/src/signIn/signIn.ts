/**
 * Starts a notebook's kernel again after its user has signed in to the node that refused the first start.
 *
 * This code asks for no secrets: prompts do, or our command in a terminal.
 */
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, KernelSpec } from '@jupyterlab/services';
import { Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';

// The imports have a suffix, for Node's test runner.
import { isOurs, ourSpec } from '../specs.js';
import type { INode } from '../tokens';

const INTERVAL = 2000;
const LONGEST_INTERVAL = 30000;
/** How often the nodes are asked before a cancelled start counts as failed for another reason. */
const TRIES = 5;

/** The node of this kernelspec, if it refuses connections until the user has signed in. */
export function refusing(nodes: readonly INode[], name: string): INode | undefined {
  return nodes.find(node => node.names?.includes(name) && !node.connected && node.problem?.login === true);
}

/** Whether there is a connection to the node of this kernelspec. */
export function isConnected(nodes: readonly INode[], name: string): boolean {
  return nodes.some(node => node.names?.includes(name) && node.connected);
}

export class SignIn {
  constructor(options: SignIn.IOptions) {
    this._options = options;
    this._poll = new Poll<void>({
      auto: false,
      name: 'jupyter-gpu-kernel:sign-in',
      factory: () => this._ask(),
      frequency: { interval: options.interval ?? INTERVAL, backoff: true, max: LONGEST_INTERVAL },
      standby: 'never' // the user may sign in from another window
    });
    options.sessionContext.statusChanged.connect(this._onStatus, this);
    options.sessionContext.disposed.connect(this.dispose, this);
  }

  dispose(): void {
    this._end();
    this._poll.dispose();
    Signal.clearData(this);
  }

  /**
   * The user has cancelled the sign-in for which the kernel of a notebook waits. Where another page has started it, as
   * the list of files of Notebook 7 does, this page would not say why its notebook has no kernel, nor know which one
   * the user wants.
   */
  cancelled(name: string, notebook: string): void {
    const { sessionContext, preselect } = this._options;
    if (this._name === undefined && !sessionContext.session?.kernel && notebook === sessionContext.path) {
      sessionContext.kernelPreference = { ...sessionContext.kernelPreference, name };
      preselect(name);
      this._name = name;
      this._tries = TRIES;
      void this._poll.refresh();
    }
  }

  private _onStatus(context: ISessionContext, status: Kernel.Status): void {
    const [kernel, specs] = [context.session?.kernel, this._options.specs()];
    if (kernel || status === 'starting') {
      this._end(); // the user has a kernel, or starts one
    }
    if (!kernel && status === 'starting') {
      this._name = ourSpec(specs, context.kernelDisplayName);
    } else if (kernel && status === 'dead' && isOurs(specs, kernel)) {
      this._name = kernel.name; // a kernel that was started by argv: its launcher failed
    }
    if (this._name !== undefined && (status === 'unknown' || status === 'dead')) {
      void this._poll.refresh();
    }
  }

  /** Stops waiting. */
  private _end(): void {
    this._name = undefined;
    this._tries = 0;
    void this._poll.stop();
    this._withdraw?.();
    this._withdraw = undefined;
  }

  private async _ask(): Promise<void> {
    const name = this._name;
    const nodes = await this._options.fetch();
    if (name === undefined || name !== this._name) {
      return; // the user has chosen another kernel meanwhile
    }
    const node = refusing(nodes, name);
    if (this._withdraw && isConnected(nodes, name)) {
      this._end();
      await this._options.sessionContext.changeKernel({ name }).catch(() => undefined); // JupyterLab shows the error
    } else if (!this._withdraw && node) {
      this._withdraw = this._options.tell(node, name);
    } else if (!this._withdraw && --this._tries < 0) {
      this._end(); // the start failed for another reason
    }
  }

  private readonly _options: SignIn.IOptions;
  private readonly _poll: Poll<void>;
  /** The kernelspec of the pending or refused start. */
  private _name: string | undefined;
  private _tries = 0;
  /** Closes the notification; set while waiting for the sign-in. */
  private _withdraw: (() => void) | undefined;
}

export namespace SignIn {
  export interface IOptions {
    readonly sessionContext: ISessionContext;
    /** The kernelspecs, null while they are not known. */
    readonly specs: () => KernelSpec.ISpecModels | null;
    readonly fetch: () => Promise<INode[]>;
    /** Shows the user what to do. Returns a function that closes the notification. */
    readonly tell: (node: INode, name: string) => () => void;
    /** Selects this kernelspec where JupyterLab already asks for the notebook's kernel. */
    readonly preselect: (name: string) => void;
    /** Milliseconds between two requests. */
    readonly interval?: number;
  }
}
