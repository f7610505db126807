/**
 * One use of the form: what the user has entered, the search on the machine, and the kernelspec. No page, no network of
 * its own.
 */
import { Signal } from '@lumino/signaling';

import type { IProblem } from '../tokens';
// The imports have a suffix, for Node's test runner.
import { changesMachine, EMPTY, fieldOf, isSame, requestOf, withFound, withoutFound } from './fields.js';
import { Refusal } from './types.js';
import type { IAddApi, IFields, IFound, IHost, IProbe, IProbeRequest, ISpec, IWritten } from './types';

const INTERVAL = 300;

/** An error of the form; `field` is undefined if it is about none. */
export interface IFormProblem extends IProblem {
  readonly field?: keyof IFields;
}

export class AddSession {
  /** `refresh`: makes JupyterLab read the kernelspecs anew. `interval`: milliseconds between two requests. */
  constructor(api: IAddApi, refresh: () => Promise<void>, interval = INTERVAL) {
    this._api = api;
    this._refresh = refresh;
    this._interval = interval;
  }

  readonly changed = new Signal<this, void>(this);

  fields: IFields = EMPTY;
  /** Those of the ssh configuration; null while they are not known. */
  hosts: readonly IHost[] | null = null;
  specs: readonly ISpec[] = [];
  /** The last search. */
  probe: IProbe | null = null;
  /** The last check of what was changed since then. */
  check: IProbe | null = null;
  /** What it has found. */
  found: IFound | null = null;
  /** What the form does for the user at the moment. */
  busy: 'searching' | 'adding' | null = null;
  problem: IFormProblem | null = null;
  /** Whether a kernelspec of ours has the chosen name. */
  isTaken = false;
  written: IWritten | null = null;

  /** Reads the hosts of the ssh configuration, and the kernelspecs that are there. */
  async load(): Promise<void> {
    const { config } = this.fields;
    const [hosts, specs] = await Promise.allSettled([this._api.hosts(config), this._api.specs()]);
    if (config !== this.fields.config) {
      return;
    }
    this.hosts = hosts.status === 'fulfilled' ? hosts.value : [];
    this.specs = specs.status === 'fulfilled' ? specs.value : this.specs;
    const failed = hosts.status === 'rejected' ? hosts.reason : specs.status === 'rejected' ? specs.reason : null;
    if (failed) {
      this.problem = problemOf(failed);
    }
    this._checkName();
    this.changed.emit();
  }

  /** Enters something. What was found on another machine is forgotten. */
  set(patch: Partial<IFields>): void {
    const before = this.fields;
    this.fields = { ...before, ...patch };
    if (this.problem?.field === undefined || this.problem.field in patch) {
      this.problem = null;
    }
    if (changesMachine(before, this.fields)) {
      void this.cancel();
      this.fields = this.found ? withoutFound(this.fields) : this.fields;
      this.probe = this.check = this.found = this._confirmed = null;
    }
    if ('name' in patch) {
      this.fields = { ...this.fields, replace: false };
    }
    this._checkName();
    this.written = null;
    this.changed.emit();
    if ('config' in patch) {
      void this.load();
    }
  }

  /** Connects to the machine and looks around. Resolves when that has ended. */
  async search(): Promise<void> {
    await this.cancel();
    const run = this._begin('searching');
    this.found = this.probe = this.check = null;
    const probe = await this._ask(requestOf(this.fields), run, now => (this.probe = now));
    if (probe?.found) {
      this.found = probe.found;
      this.fields = withFound(this.fields, probe.found);
      this._confirmed = { id: probe.id, request: requestOf(this.fields) };
      this._checkName();
    }
    this._end(run);
  }

  /** Writes the kernelspec; what has been changed since the search is checked on the machine first. */
  async add(): Promise<void> {
    const run = this._begin('adding');
    this.check = null;
    const { name, replace } = this.fields;
    try {
      const id = await this._confirm(run);
      if (id) {
        this.written = await this._api.write(id, name, replace);
        await this._refresh();
        this.specs = await this._api.specs();
      }
    } catch (error) {
      this._failed(error);
    }
    this._end(run);
  }

  /** Ends the search, if there is one. */
  async cancel(): Promise<void> {
    const running = [this.probe, this.check].find(probe => probe?.state === 'running');
    this._run += 1;
    this.busy = null;
    if (running) {
      this.probe = running === this.probe ? null : this.probe;
      this.check = null;
      this.changed.emit();
      await this._api.cancel(running.id).catch(() => undefined); // it has ended, or the server has
    }
  }

  /** Begins anew. */
  reset(): void {
    this.fields = { ...EMPTY, config: this.fields.config };
    this.probe = this.check = this.found = this.problem = this.written = this._confirmed = null;
    this.isTaken = false;
    this.changed.emit();
  }

  dispose(): void {
    void this.cancel();
    Signal.clearData(this);
  }

  /** The id of a probe that succeeded with what is entered now; '' if none does. */
  private async _confirm(run: number): Promise<string> {
    const request = requestOf(this.fields);
    if (!this._confirmed || !isSame(this._confirmed.request, request)) {
      const probe = await this._ask(request, run, now => (this.check = now));
      if (!probe?.found) {
        return '';
      }
      this._confirmed = { id: probe.id, request };
    }
    return this._confirmed.id;
  }

  /** The probe when it has ended; null if it could not be made, or the user has gone on. */
  private async _ask(
    request: IProbeRequest,
    run: number,
    show: (probe: IProbe) => void
  ): Promise<IProbe | null> {
    try {
      let probe = await this._api.start(request);
      while (run === this._run && probe.state === 'running') {
        show(probe);
        this.changed.emit();
        await new Promise(done => setTimeout(done, this._interval));
        probe = run === this._run ? await this._api.probe(probe.id) : probe;
      }
      if (run !== this._run) {
        await this._api.cancel(probe.id).catch(() => undefined); // it has ended, or the server has
        return null;
      }
      show(probe);
      const field = fieldOf(probe.field);
      this.problem = probe.error && field ? { ...probe.error, field } : null; // others are shown at their hop
      return probe;
    } catch (error) {
      if (run === this._run) {
        this._failed(error);
      }
      return null;
    }
  }

  /** Returns the number of what begins; it is over when `_run` is another one. */
  private _begin(what: 'searching' | 'adding'): number {
    this.busy = what;
    this.problem = this.written = null;
    this.changed.emit();
    return ++this._run;
  }

  private _end(run: number): void {
    if (run === this._run) {
      this.busy = null;
      this.changed.emit();
    }
  }

  private _failed(error: unknown): void {
    this.problem = problemOf(error);
    if (error instanceof Refusal && error.replaceable) {
      this.isTaken = true;
    }
  }

  private _checkName(): void {
    const name = this.fields.name.trim().toLowerCase();
    this.isTaken = this.specs.some(spec => spec.name === name);
  }

  private readonly _api: IAddApi;
  private readonly _refresh: () => Promise<void>;
  private readonly _interval: number;
  private _run = 0;
  /** The last probe that has succeeded, and what was asked for. */
  private _confirmed: { id: string; request: IProbeRequest } | null = null;
}

function problemOf(error: unknown): IFormProblem {
  if (error instanceof Refusal) {
    const field = fieldOf(error.field);
    return { ...error.problem, ...(field ? { field } : {}) };
  }
  const cause = error instanceof Error ? error.message : String(error);
  return { kind: 'Error', hop: '', cause, remedy: '' };
}
