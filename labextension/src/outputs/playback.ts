/**
 * Replays output messages to get the outputs of a cell, as JupyterLab's output area does.
 *
 * The list of outputs is JupyterLab's own, which merges streams and applies carriage returns. This module does the
 * rest of the output area's work: display ids, also those of other cells, and clear_output. It knows no page.
 */
import type { IOutput } from '@jupyterlab/nbformat';
import type { JSONObject } from '@lumino/coreutils';

import type { IOutputMessage, IRecord } from './journal';

/** Shown before the remaining outputs of a cell whose first outputs were dropped. */
const NOTICE: IOutputMessage = {
  msg_type: 'stream',
  content: { name: 'stderr', text: '[The first part of this output was too large to keep.]\n' }
};

/** The part of JupyterLab's `IOutputAreaModel` that is used here. */
export interface IOutputs {
  readonly length: number;
  add(output: IOutput): number;
  set(index: number, output: IOutput): void;
  clear(): void;
  toJSON(): IOutput[];
}

export class Playback {
  /** `make` returns a new, empty list of outputs. */
  constructor(make: () => IOutputs) {
    this._make = make;
  }

  /** Replays a record, replacing its earlier version. Returns the msg_ids of all changed records. */
  play(record: IRecord): Set<string> {
    const stage = { outputs: this._make(), displays: new Map<string, number[]>(), clearNext: false };
    this._stages.set(record.msg_id, stage);
    const changed = new Set([record.msg_id]);
    for (const message of [...(record.dropped ? [NOTICE] : []), ...record.outputs]) {
      this._update(message, changed);
      perform(stage, message);
    }
    return changed;
  }

  /** The outputs of a record that was replayed. */
  outputsOf(msgId: string): IOutput[] {
    return this._stages.get(msgId)?.outputs.toJSON() ?? [];
  }

  /** A display with an id replaces the displays with that id in all cells. */
  private _update(message: IOutputMessage, changed: Set<string>): void {
    const id = displayIdOf(message);
    if (id === undefined) {
      return;
    }
    for (const [msgId, stage] of this._stages) {
      for (const index of stage.displays.get(id) ?? []) {
        stage.outputs.set(index, { ...message.content, output_type: 'display_data' });
        changed.add(msgId);
      }
    }
  }

  private readonly _make: () => IOutputs;
  private readonly _stages = new Map<string, IStage>();
}

/** The outputs of one record, and which of them have a display id. */
interface IStage {
  readonly outputs: IOutputs;
  readonly displays: Map<string, number[]>;
  clearNext: boolean;
}

function perform(stage: IStage, message: IOutputMessage): void {
  if (message.msg_type === 'update_display_data') {
    return;
  }
  if (message.msg_type === 'clear_output') {
    return message.content.wait ? void (stage.clearNext = true) : clear(stage);
  }
  if (stage.clearNext) {
    clear(stage);
  }
  stage.outputs.add({ ...message.content, output_type: message.msg_type });
  const id = displayIdOf(message);
  if (id !== undefined && message.msg_type === 'display_data') {
    stage.displays.set(id, [...(stage.displays.get(id) ?? []), stage.outputs.length - 1]);
  }
}

function clear(stage: IStage): void {
  stage.clearNext = false;
  stage.outputs.clear();
  stage.displays.clear();
}

function displayIdOf(message: IOutputMessage): string | undefined {
  return (message.content.transient as JSONObject | undefined)?.display_id as string | undefined;
}
