/**
 * Messages over a local socket, as Python's `multiprocessing.connection` frames them: four bytes with the length, in
 * network order, then the message. Also the proof that both sides have the key. This module knows no message.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Socket } from 'node:net';

/** Bytes of one message, and of those that nobody has taken yet. The hub keeps no more for a client. */
const MAX_BYTES = 64 * 1024 * 1024;
const PROOF_SIZE = 32;
/** Milliseconds in which both sides have to prove that they have the key. */
const PROOF_TIMEOUT = 20_000;

interface IWaiter {
  readonly resolve: (message: Buffer) => void;
  readonly reject: (error: Error) => void;
}

/** One connection. Whatever breaks the framing ends it. */
export class FrameSocket {
  constructor(socket: Socket) {
    this._socket = socket;
    socket.on('data', (chunk: Buffer) => this._add(chunk));
    socket.on('error', () => undefined); // `close` follows
    socket.on('close', () => this._end());
  }

  get closed(): boolean {
    return this._closed;
  }

  /** Called once, when either side has closed the connection. */
  onClose: () => void = () => undefined;

  send(message: Buffer): void {
    const header = Buffer.alloc(4);
    header.writeInt32BE(message.length);
    this._socket.write(Buffer.concat([header, message]));
  }

  /** The next message. It is rejected when the connection has been closed. */
  receive(): Promise<Buffer> {
    const message = this._take();
    if (message) {
      return Promise.resolve(message);
    }
    return this._closed ? Promise.reject(closedError()) : new Promise((resolve, reject) => (this._waiter = { resolve, reject }));
  }

  close(): void {
    this._socket.destroy();
    this._end();
  }

  private _add(chunk: Buffer): void {
    this._size += chunk.length;
    if (this._size > MAX_BYTES + 4) {
      return this.close();
    }
    this._chunks.push(chunk);
    if (this._waiter) {
      const message = this._take();
      if (message) {
        this._waiter.resolve(message);
        this._waiter = null;
      }
    }
  }

  /** The first whole message, or null. */
  private _take(): Buffer | null {
    if (this._size < 4 || this._closed) {
      return null;
    }
    if (this._needed === null) {
      this._join();
      const length = this._chunks[0]!.readInt32BE();
      if (length < 0 || length > MAX_BYTES) {
        this.close();
        return null;
      }
      this._needed = length;
    }
    const end = 4 + this._needed;
    if (this._size < end) {
      return null;
    }
    this._join();
    const whole = this._chunks[0]!;
    this._chunks = [whole.subarray(end)];
    this._size -= end;
    this._needed = null;
    return whole.subarray(4, end);
  }

  private _join(): void {
    this._chunks = [Buffer.concat(this._chunks)];
  }

  private _end(): void {
    if (!this._closed) {
      this._closed = true;
      this._waiter?.reject(closedError());
      this._waiter = null;
      this.onClose();
    }
  }

  private readonly _socket: Socket;
  private _chunks: Buffer[] = [];
  private _size = 0;
  /** The length of the message whose beginning has come. */
  private _needed: number | null = null;
  private _waiter: IWaiter | null = null;
  private _closed = false;
}

/** Proves to the hub that we have its key. It is rejected if the hub does not have the key, or does not accept ours. */
export async function proveToHub(frames: FrameSocket, key: Buffer): Promise<void> {
  const timer = setTimeout(() => frames.close(), PROOF_TIMEOUT);
  try {
    const theirs = await frames.receive();
    const ours = randomBytes(PROOF_SIZE);
    frames.send(Buffer.concat([ours, proofOf(key, 'client', theirs, ours)]));
    const proof = await frames.receive();
    const expected = proofOf(key, 'hub', theirs, ours);
    if (proof.length !== expected.length || !timingSafeEqual(proof, expected)) {
      throw new Error('the other side does not have the key');
    }
  } catch (error) {
    frames.close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** What one side sends, for the random bytes of both. */
export function proofOf(key: Buffer, side: 'client' | 'hub', ofHub: Buffer, ofClient: Buffer): Buffer {
  return createHmac('sha256', key).update(side).update(ofHub).update(ofClient).digest();
}

function closedError(): Error {
  return new Error('the connection was closed');
}
