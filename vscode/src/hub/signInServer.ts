/**
 * Listens, as a Jupyter server does, for kernels whose start waits until their user has signed in. No secret passes here.
 */
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { unlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { join } from 'node:path';

import { inert, specNameOf } from './border.js';
import { acceptClient, FrameSocket } from './frames.js';
import { line, recordOf } from '../../../labextension/src/untrusted.js';

const MOST_CONNECTIONS = 20;

export interface IWaitingKernel {
  readonly name: string;
  readonly node: string;
  readonly notebook: string;
}

/** Asks the user. Returns true when the user has cancelled; `gone`: the kernel does not wait any more. */
export type OnRequest = (kernel: IWaitingKernel, gone: AbortSignal) => Promise<boolean>;

export class SignInServer {
  /** Listens in this folder, which only this user can enter. */
  static async listen(folder: string, onRequest: OnRequest): Promise<SignInServer> {
    const path = join(folder, randomBytes(4).toString('hex'));
    const key = randomBytes(32);
    let connections = 0;
    const server = createServer(socket => {
      connections += 1;
      socket.once('close', () => (connections -= 1));
      void serve(socket, key, connections > MOST_CONNECTIONS ? null : onRequest);
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, resolve);
    });
    // Launchers look for the file with the key, so it comes last.
    await writeFile(`${path}.key`, key, { mode: 0o600, flag: 'wx' });
    return new SignInServer(server, `${path}.key`);
  }

  private constructor(server: Server, keyFile: string) {
    this._server = server;
    this._keyFile = keyFile;
  }

  /** At once, as the window may be about to end. */
  dispose(): void {
    try {
      unlinkSync(this._keyFile);
    } catch {
      // A launcher has removed it, which could not connect.
    }
    this._server.close();
  }

  private readonly _server: Server;
  private readonly _keyFile: string;
}

/** Serves one launcher. `onRequest`: null if too many have connected, which the launcher is told. */
async function serve(socket: Socket, key: Buffer, onRequest: OnRequest | null): Promise<void> {
  const frames = new FrameSocket(socket);
  const gone = new AbortController();
  frames.onClose = () => gone.abort();
  try {
    await acceptClient(frames, key);
    const send = (message: object): void => (frames.closed ? undefined : frames.send(Buffer.from(JSON.stringify(message))));
    for (;;) {
      const { id, op, name, node, notebook, bye } = recordOf(JSON.parse((await frames.receive()).toString('utf8')));
      if (bye || typeof id !== 'number' || op !== 'sign_in' || !specNameOf(name)) {
        return frames.close();
      }
      const kernel = { name: specNameOf(name), node: inert(node, 200), notebook: line(notebook, 4096) };
      if (!onRequest) {
        send({ id, error: errorOf('too many kernels wait for a sign-in', kernel.node) });
        continue;
      }
      send({ id, progress: { hop: kernel.node, step: 'VS Code asks the user to sign in' } });
      void onRequest(kernel, gone.signal).then(
        cancelled => (cancelled ? send({ id, result: { cancelled: true } }) : undefined),
        fault => send({ id, error: errorOf(`VS Code cannot ask the user: ${String(fault)}`, kernel.node) })
      );
    }
  } catch {
    frames.close(); // the launcher has left, does not have the key, or sent something else
  }
}

/** An error as a Jupyter server sends it. */
function errorOf(cause: string, hop: string): object {
  return { kind: 'HubError', cause, hop, remedy: '', login: false };
}
