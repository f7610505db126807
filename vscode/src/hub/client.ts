/**
 * Calls to the hub: results, errors, and questions that the hub asks back. This module knows no operation.
 */
import { createConnection } from 'node:net';
import { readFile } from 'node:fs/promises';

import { inert, problem } from './border.js';
import { FrameSocket, proveToHub } from './frames.js';
import { isRecord, recordOf } from '../../../labextension/src/untrusted.js';
import type { Facts } from '../../../labextension/src/untrusted.js';
import type { IProblem } from '../shared/words.js';

/** Milliseconds for a call, unless the caller gives others. */
const TIMEOUT = 60_000;
/** Bytes of the file with the key. */
const LONGEST_KEY = 1024;

/** An error that the hub has returned. */
export class HubError extends Error {
  constructor(readonly problem: IProblem) {
    super([`${problem.hop ? `${problem.hop}: ` : ''}${problem.cause}.`, problem.remedy].filter(Boolean).join(' '));
  }
}

/** What the user does with a question: a text, or true for a host key; null: nothing; 'cancel': the call fails. */
export type Answer = { readonly value: string | boolean } | 'cancel' | null;

/** Asks the user. `signal` tells that nobody waits for the answer any more. */
export type Asker = (question: Facts, signal: AbortSignal) => Promise<Answer>;

export interface ICallOptions {
  /** Milliseconds; 0: without a limit. */
  readonly timeout?: number;
  readonly ask?: Asker;
  readonly onProgress?: (text: string) => void;
  /** Closes the questions of this call, and ends it. */
  readonly signal?: AbortSignal;
}

interface ICall {
  readonly options: ICallOptions;
  readonly questions: AbortController;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** One connection to the hub. */
export class HubClient {
  /** Connects. It is rejected if no hub listens there. */
  static async connect(address: string, keyFile: string): Promise<HubClient> {
    const key = await readFile(keyFile);
    if (!key.length || key.length > LONGEST_KEY) {
      throw new Error('the key of the hub is not valid');
    }
    const socket = createConnection(address);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    const frames = new FrameSocket(socket);
    await proveToHub(frames, key);
    return new HubClient(frames);
  }

  private constructor(frames: FrameSocket) {
    this._frames = frames;
    frames.onClose = () => this._fail(new Error('the local hub ended'));
    void this._read();
  }

  get closed(): boolean {
    return this._frames.closed;
  }

  call(op: string, values: object = {}, options: ICallOptions = {}): Promise<unknown> {
    if (this.closed) {
      return Promise.reject(new Error('the local hub ended'));
    }
    if (options.signal?.aborted) {
      return Promise.reject(new Error('cancelled'));
    }
    const id = this._next++;
    return new Promise((resolve, reject) => {
      const call = { options, questions: new AbortController(), resolve, reject };
      this._calls.set(id, call);
      const limit = options.timeout ?? TIMEOUT;
      const timer = limit ? setTimeout(() => this._end(id)?.reject(new Error(`the hub did not answer “${op}”`)), limit) : undefined;
      call.questions.signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
      options.signal?.addEventListener('abort', () => this._end(id)?.reject(new Error('cancelled')), { once: true });
      this._send({ ...values, id, op, asks: options.ask !== undefined });
    });
  }

  close(): void {
    if (!this.closed) {
      this._send({ bye: true });
      this._frames.close();
    }
  }

  private _send(message: object): void {
    this._frames.send(Buffer.from(JSON.stringify(message)));
  }

  private async _read(): Promise<void> {
    try {
      for (;;) {
        this._handle(JSON.parse((await this._frames.receive()).toString('utf8')));
      }
    } catch {
      this._frames.close(); // it was closed, or what came is not JSON
    }
  }

  private _handle(message: unknown): void {
    if (!isRecord(message) || typeof message.id !== 'number') {
      return; // an event, which is for those who start kernels
    }
    const call = this._calls.get(message.id);
    if (!call) {
      return;
    }
    if ('progress' in message) {
      const { hop, step } = recordOf(message.progress);
      call.options.onProgress?.([inert(hop), inert(step)].filter(Boolean).join(': '));
    } else if ('ask' in message) {
      void this._answer(call, message);
    } else if ('error' in message) {
      this._end(message.id)?.reject(new HubError(problem(message.error)));
    } else {
      this._end(message.id)?.resolve(message.result);
    }
  }

  private async _answer(call: ICall, { ask, question }: Facts): Promise<void> {
    let answer: Answer = null;
    try {
      answer = (await call.options.ask?.(recordOf(ask), call.questions.signal)) ?? null;
    } finally {
      // Also if asking has failed: the hub waits for an answer.
      if (!this.closed) {
        const value = answer === null || answer === 'cancel' ? null : answer.value;
        this._send({ answer: question, value, ...(answer === 'cancel' ? { cancelled: true } : {}) });
      }
    }
  }

  /** Forgets the call, and closes its questions. */
  private _end(id: number): ICall | undefined {
    const call = this._calls.get(id);
    this._calls.delete(id);
    call?.questions.abort();
    return call;
  }

  private _fail(error: Error): void {
    for (const id of [...this._calls.keys()]) {
      this._end(id)?.reject(error);
    }
  }

  private readonly _frames: FrameSocket;
  private readonly _calls = new Map<number, ICall>();
  private _next = 1;
}
