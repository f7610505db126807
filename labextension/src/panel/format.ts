/**
 * Numbers, durations and names as text. Pure: no page, no network.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** How long something has lasted, in at most two units. */
export function duration(trans: TranslationBundle, seconds: number): string {
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
export function elapsed(trans: TranslationBundle, now: number, since: number | null | undefined): string {
  return since ? duration(trans, now - since) : '';
}

/** A round trip; '' if it is not known. */
export function roundTrip(trans: TranslationBundle, milliseconds: number | null | undefined): string {
  if (typeof milliseconds !== 'number') {
    return '';
  }
  return milliseconds < 1 ? trans.__('< 1 ms') : trans.__('%1 ms', Math.round(milliseconds));
}

/** MiB as GiB, with one decimal below 100. */
export function gibibytes(mib: number): string {
  const value = mib / 1024;
  return value >= 99.95 ? String(Math.round(value)) : value.toFixed(1).replace(/\.0$/, '');
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
