/**
 * The execute requests of this page that have not ended: it receives their outputs from the kernel. Pure.
 */
import type { KernelMessage } from '@jupyterlab/services';

/** A request ends with both. */
const REPLY = 'execute_reply';
const IDLE = 'idle';

export class OwnRequests {
  /** `onChange(msgId, pending)`: a request was sent, or has ended. */
  constructor(onChange: (msgId: string, pending: boolean) => void) {
    this._onChange = onChange;
  }

  /** Whether this request has not ended. */
  has(msgId: string): boolean {
    return this._pending.has(msgId);
  }

  sent(message: KernelMessage.IMessage): void {
    this._pending.set(message.header.msg_id, new Set([REPLY, IDLE]));
    this._onChange(message.header.msg_id, true);
  }

  received(message: KernelMessage.IMessage): void {
    const msgId = (message.parent_header as Partial<KernelMessage.IHeader>).msg_id ?? '';
    const awaited = this._pending.get(msgId);
    const state = (message.content as { execution_state?: string }).execution_state;
    if (awaited?.delete(message.header.msg_type === REPLY ? REPLY : (state ?? '')) && awaited.size === 0) {
      this._end(msgId);
    }
  }

  /** The kernel was restarted, or is another one. */
  clear(): void {
    [...this._pending.keys()].forEach(msgId => this._end(msgId));
  }

  private _end(msgId: string): void {
    this._pending.delete(msgId);
    this._onChange(msgId, false);
  }

  private readonly _onChange: (msgId: string, pending: boolean) => void;
  private readonly _pending = new Map<string, Set<string>>();
}
