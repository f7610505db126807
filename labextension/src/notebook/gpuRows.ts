/**
 * The rows that the button “GPU” shows: the kernel's own status, as `%gpu` has it, or what the hub knows. Pure.
 *
 * The status comes from the node, which may be compromised: each value becomes a text of one line and limited length.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

// The imports have a suffix, for Node's test runner.
import { clock, duration, memory, usersOf } from '../format.js';
import type { IGpuUse, IRemoteKernel } from '../tokens';
import { isRecord, line, listOf, recordOf } from '../untrusted.js';
import type { Facts } from '../untrusted';

export type Row = readonly [label: string, value: string];

const LONGEST = 300;

/** An expression that gives the status as hexadecimal digits, so that no quotes are in the answer; it binds no name. */
export const EXPRESSION = "__import__('json').dumps(__import__('gpu_kernel').status()).encode().hex()";

/** The status in the answer to `EXPRESSION`; null if it is malformed. */
export function parseStatus(answer: unknown): Facts | null {
  const digits = /^'([0-9a-f]*)'$/.exec(typeof answer === 'string' ? answer : '')?.[1] ?? '';
  const bytes = Uint8Array.from(digits.match(/../g) ?? [], pair => parseInt(pair, 16));
  try {
    const status: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return isRecord(status) ? status : null;
  } catch {
    return null;
  }
}

/** The rows for a status of the kernel. `now`: in seconds since 1970. */
export function rowsOfStatus(status: Facts, now: number, trans: TranslationBundle): Row[] {
  const [used, job, code] = [recordOf(status.memory), recordOf(status.job), recordOf(status.code)];
  const names = textsOf(status.gpu_names).join(', ') || textsOf(status.gpus).join(', ');
  const free = memory(numberOf(used.node_available_mib), numberOf(used.node_total_mib), trans);
  return filled([
    [trans.__('GPUs'), names || trans.__('none; the first cell takes them')],
    [trans.__('GPU memory in use'), memory(numberOf(used.gpu_used_mib), numberOf(used.gpu_total_mib), trans)],
    [trans.__('Free memory of the node'), free],
    [trans.__('Memory of the job'), memory(numberOf(used.cgroup_used_mib), numberOf(used.cgroup_limit_mib), trans)],
    [trans.__('Slurm job'), textOf(job.id) && `${textOf(job.id)} (${textOf(job.partition)})`],
    [trans.__('Time left'), timeLeft(numberOf(job.end_time), now, trans)],
    [trans.__('Chosen host'), textOf(status.placement)],
    [trans.__('Ignored leases'), textsOf(status.ignored_leases).join(' ')],
    [trans.__('Pinned code'), textOf(code.revision) && `${textOf(code.revision)} (${textOf(code.subject)})`],
    [trans.__('Guard against SIGTERM'), textOf(status.guard)],
    [trans.__('Last SIGTERM'), textOf(status.last_sigterm)],
    [trans.__('Kernel'), `${textOf(status.id)}, ${trans.__('process %1', textOf(status.pid))}`]
  ]);
}

/** The rows for a kernel that is not asked, since it runs a cell or cannot be reached. */
export function rowsOfKernel(kernel: IRemoteKernel, uses: readonly IGpuUse[], now: number, trans: TranslationBundle): Row[] {
  const busy = kernel.busy_since ? ` (${trans.__('for %1', duration(now - kernel.busy_since, trans))})` : '';
  const away = kernel.away_since ? trans.__('out of reach since %1', clock(kernel.away_since, true)) : kernel.link;
  return filled([
    [trans.__('GPUs'), (kernel.gpu_names ?? kernel.gpus).join(', ') || trans.__('none; the first cell takes them')],
    ...uses.map((use): Row => [trans.__('GPU memory in use'), memory(use.memory_used_mib, use.memory_total_mib, trans)]),
    [trans.__('Who uses them'), usersOf(uses.flatMap(use => use.processes ?? []), trans)],
    [trans.__('Node'), kernel.node],
    [trans.__('State'), kernel.state + busy],
    [trans.__('Link'), away ?? ''],
    [trans.__('Time left'), timeLeft(kernel.ends_at ?? null, now, trans)],
    [trans.__('Kernel'), kernel.id]
  ]);
}

function filled(rows: readonly Row[]): Row[] {
  return rows.filter(([, value]) => value !== '').map(([label, value]) => [label, textOf(value)]);
}

function timeLeft(end: number | null, now: number, trans: TranslationBundle): string {
  return end ? trans.__('%1 (until %2)', duration(Math.max(0, end - now), trans), clock(end)) : '';
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function textOf(value: unknown): string {
  return line(typeof value === 'number' ? String(value) : value, LONGEST);
}

function textsOf(value: unknown): string[] {
  return listOf(value).slice(0, 16).map(textOf).filter(Boolean);
}
