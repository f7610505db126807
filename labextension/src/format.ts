/**
 * Numbers, times and names as users read them. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

import type { IProcess } from './tokens';

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** “14:02”, or with seconds “14:02:10”. `time`: in seconds since 1970. */
export function clock(time: number, seconds = false): string {
  const date = new Date(time * 1000);
  const parts = [date.getHours(), date.getMinutes(), ...(seconds ? [date.getSeconds()] : [])];
  return parts.map(part => String(part).padStart(2, '0')).join(':');
}

/** “12 s”, “3 min”, “2 h 5 min”, “3 d 2 h”. */
export function duration(seconds: number, trans: TranslationBundle): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < MINUTE) {
    return trans.__('%1 s', whole);
  }
  if (whole < HOUR) {
    return trans.__('%1 min', Math.floor(whole / MINUTE));
  }
  if (whole < DAY) {
    return trans.__('%1 h %2 min', Math.floor(whole / HOUR), Math.floor((whole % HOUR) / MINUTE));
  }
  return trans.__('%1 d %2 h', Math.floor(whole / DAY), Math.floor((whole % DAY) / HOUR));
}

/** The time from `since` to `now`; '' if it is not known. */
export function elapsed(since: number | null | undefined, now: number, trans: TranslationBundle): string {
  return since ? duration(now - since, trans) : '';
}

/** “3 ms”, “< 1 ms”; '' if it is not known. */
export function roundTrip(milliseconds: number | null | undefined, trans: TranslationBundle): string {
  if (typeof milliseconds !== 'number') {
    return '';
  }
  return milliseconds < 1 ? trans.__('< 1 ms') : trans.__('%1 ms', Math.round(milliseconds));
}

/** “12.3 of 24 GiB”; what is used alone, or nothing, if the rest is unknown. */
export function memory(used: number | null | undefined, total: number | null | undefined, trans: TranslationBundle): string {
  if (typeof used === 'number' && typeof total === 'number') {
    return trans.__('%1 of %2 GiB', gibibytes(used), gibibytes(total));
  }
  return typeof used === 'number' ? trans.__('%1 GiB', gibibytes(used)) : '';
}

/** MiB as GiB, with one decimal below 100. */
export function gibibytes(mib: number): string {
  const value = mib / 1024;
  return value >= 99.95 ? String(Math.round(value)) : value.toFixed(1).replace(/\.0$/, '');
}

/** Everybody on GPUs, with the memory that each uses: “bob 11.7 GiB, you 2 GiB”; '' if nobody but the user is there. */
export function usersOf(processes: readonly IProcess[], trans: TranslationBundle): string {
  const used = new Map<string, number>();
  for (const { user, mine, memory_mib } of processes) {
    const name = mine ? trans.__('you') : user && user !== '?' ? user : trans.__('unknown user');
    used.set(name, (used.get(name) ?? 0) + (memory_mib ?? NaN)); // the sum is unknown if a part of it is
  }
  const texts = [...used].map(([name, mib]) => (Number.isNaN(mib) ? name : trans.__('%1 %2 GiB', name, gibibytes(mib))));
  return processes.some(one => !one.mine) ? texts.join(', ') : '';
}

/** The last part of a path of any system. */
export function basename(path: string): string {
  return path.split(/[\\/]/).filter(Boolean).pop() ?? '';
}

/** What all nodes have in their names of GPUs is of no use in a narrow column. */
export function shortName(name: string): string {
  return name.replace(/^NVIDIA\s+/, '').replace(/^GeForce\s+/, '');
}

/** A part of a whole from 0 to 1; null if it is not known. */
export function share(part: number | null | undefined, whole: number | null | undefined): number | null {
  return typeof part === 'number' && typeof whole === 'number' && whole > 0
    ? Math.min(1, Math.max(0, part / whole))
    : null;
}
