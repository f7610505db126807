/** A hub that answers as a test wants, on a socket of its own. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { FrameSocket, proofOf } from '../src/hub/frames.js';

type Message = Record<string, unknown>;

export class PlayedHub {
  static async start(): Promise<PlayedHub> {
    const folder = await mkdtemp(join(tmpdir(), 'remote-gpu-'));
    const hub = new PlayedHub(folder);
    await writeFile(hub.keyFile, hub._key, { mode: 0o600 });
    await new Promise<void>(resolve => hub._server.listen(hub.address, resolve));
    return hub;
  }

  private constructor(readonly folder: string) {
    this.address = join(folder, 'hub');
    this.keyFile = join(folder, 'key');
    this._server = createServer(socket => void this._serve(new FrameSocket(socket)));
  }

  readonly address: string;
  readonly keyFile: string;
  /** How many connections are open. */
  get connections(): number {
    return this._clients.size;
  }
  /** All messages that came. */
  readonly received: Message[] = [];
  /** What to send for each message. */
  answer: (message: Message, send: (message: object) => void) => void = ({ id, op }, send) => send({ id, result: op });

  /** Ends all connections. */
  hangUp(): void {
    this._clients.forEach(client => client.close());
  }

  async stop(): Promise<void> {
    this.hangUp();
    await new Promise(resolve => this._server.close(resolve));
    await rm(this.folder, { recursive: true });
  }

  private async _serve(frames: FrameSocket): Promise<void> {
    this._clients.add(frames);
    const send = (message: object): void => frames.send(Buffer.from(JSON.stringify(message)));
    try {
      await this._accept(frames);
      for (;;) {
        const message = JSON.parse((await frames.receive()).toString()) as Message;
        this.received.push(message);
        this.answer(message, send);
      }
    } catch {
      this._clients.delete(frames);
    }
  }

  private async _accept(frames: FrameSocket): Promise<void> {
    const ours = randomBytes(32);
    frames.send(ours);
    const answer = await frames.receive();
    const theirs = answer.subarray(0, 32);
    if (!answer.subarray(32).equals(proofOf(this._key, 'client', ours, theirs))) {
      frames.close();
    }
    frames.send(proofOf(this._key, 'hub', ours, theirs));
  }

  private readonly _key = randomBytes(32);
  private readonly _server: Server;
  private readonly _clients = new Set<FrameSocket>();
}
