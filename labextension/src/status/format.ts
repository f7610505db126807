/**
 * Numbers and times as users read them. Pure.
 */
import type { TranslationBundle } from '@jupyterlab/translation';

/** “14:02”, or with seconds “14:02:10”. `time`: in seconds since 1970. */
export function clock(time: number, seconds = false): string {
  const date = new Date(time * 1000);
  const parts = [date.getHours(), date.getMinutes(), ...(seconds ? [date.getSeconds()] : [])];
  return parts.map(part => String(part).padStart(2, '0')).join(':');
}

/** “12 s”, “3 min”, “2 h 5 min”, “3 d 2 h”. */
export function duration(seconds: number, trans: TranslationBundle): string {
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (minutes < 1) {
    return trans.__('%1 s', Math.max(0, Math.floor(seconds)));
  }
  if (hours < 1) {
    return trans.__('%1 min', minutes);
  }
  return hours < 48
    ? trans.__('%1 h %2 min', hours, minutes % 60)
    : trans.__('%1 d %2 h', Math.floor(hours / 24), hours % 24);
}

/** “12.3 of 24 GiB”; the total alone or nothing if the rest is unknown. */
export function memory(used: number | null | undefined, total: number | null | undefined, trans: TranslationBundle): string {
  if (typeof used === 'number' && typeof total === 'number') {
    return trans.__('%1 of %2 GiB', gib(used), gib(total));
  }
  return typeof used === 'number' ? trans.__('%1 GiB', gib(used)) : '';
}

/** “3 ms”, “0.4 ms”. */
export function milliseconds(value: number, trans: TranslationBundle): string {
  return trans.__('%1 ms', value < 1 ? value.toFixed(1) : Math.round(value));
}

function gib(mib: number): string {
  const value = mib / 1024;
  return value >= 100 ? value.toFixed(0) : value.toFixed(1).replace(/\.0$/, '');
}
