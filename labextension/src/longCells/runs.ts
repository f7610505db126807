/**
 * Which cells of one kernel run, from its messages, and for how long they ran. No page, no network.
 *
 * Times are those of the messages, so that a link that was down does not count.
 */
import type { KernelMessage } from '@jupyterlab/services';

import type { IRecord } from '../outputs/journal';

export interface IEnded {
  readonly msgId: string;
  readonly ok: boolean;
  readonly seconds: number;
}

export class Runs {
  /** `onBegun`, `onEnded`: called when a cell has begun, or ended. */
  constructor(onBegun: (msgId: string) => void, onEnded: (ended: IEnded) => void) {
    [this._onBegun, this._onEnded] = [onBegun, onEnded];
  }

  /** Takes note of a message of the kernel, to any front end. */
  observe(message: KernelMessage.IIOPubMessage): void {
    const parent = message.parent_header as Partial<KernelMessage.IHeader>;
    if (parent.msg_type !== 'execute_request' || typeof parent.msg_id !== 'string') {
      return;
    }
    const { msg_type: kind } = message.header;
    if (kind === 'execute_input') {
      this._begin(parent.msg_id, timeOf(message));
    } else if (kind === 'error') {
      this._failed.add(parent.msg_id);
    } else if (kind === 'status' && (message.content as { execution_state?: string }).execution_state === 'idle') {
      this._end(parent.msg_id, timeOf(message));
    }
  }

  /** Takes note of a cell that the page has not seen begin: it runs since before the page was loaded. */
  resume(record: IRecord): void {
    if (record.status === 'running' && record.started !== null) {
      this._begin(record.msg_id, record.started);
    }
  }

  private _begin(msgId: string, time: number): void {
    if (!this._started.has(msgId)) {
      this._started.set(msgId, time);
      this._onBegun(msgId);
    }
  }

  private _end(msgId: string, time: number): void {
    const [started, failed] = [this._started.get(msgId), this._failed.delete(msgId)];
    if (started !== undefined && this._started.delete(msgId)) {
      this._onEnded({ msgId, ok: !failed, seconds: Math.max(0, time - started) });
    }
  }

  private readonly _onBegun: (msgId: string) => void;
  private readonly _onEnded: (ended: IEnded) => void;
  private readonly _started = new Map<string, number>();
  private readonly _failed = new Set<string>();
}

/** Of a cell that ended while the page was closed. */
export function endOf(record: IRecord): IEnded | null {
  const { started, finished, status } = record;
  const ended = (status === 'ok' || status === 'error') && started !== null && finished !== null;
  return ended ? { msgId: record.msg_id, ok: status === 'ok', seconds: finished - started } : null;
}

function timeOf(message: KernelMessage.IMessage): number {
  const time = Date.parse(message.header.date);
  return (Number.isNaN(time) ? Date.now() : time) / 1000;
}
