/**
 * The last ten minutes of a GPU as a line. Pure: no page, no network.
 */
import type { Sample } from '../model/overview';

/** The seconds that a curve covers. */
export const SPAN = 600;
/** A longer time without a sample interrupts the line: nobody looked. */
const GAP = 45;

export interface IBox {
  readonly width: number;
  readonly height: number;
}

type Point = readonly [time: number, part: number];

/** The lines through the values (0 to 1), and the areas below them, each as the `d` of an SVG path; '' if there is none. */
export interface IPaths {
  readonly line: string;
  readonly area: string;
}

/** The right edge is `now`. A value that stands alone is drawn as a dot. */
export function pathsOf(values: readonly (readonly [number, number | null])[], now: number, box: IBox): IPaths {
  const x = (time: number): string => round(box.width * (1 - (now - time) / SPAN));
  // Half a pixel is left, or the line would be cut at 0 and 1.
  const y = (part: number): string => round(0.5 + (box.height - 1) * (1 - Math.min(1, Math.max(0, part))));
  const lines = segments(values, now).map(points => ({
    line: points.map(([time, part], index) => `${index ? 'L' : 'M'}${x(time)} ${y(part)}`).join(''),
    end: `L${x(points[points.length - 1]![0])} ${box.height}L${x(points[0]![0])} ${box.height}Z`,
    isDot: points.length === 1
  }));
  return {
    line: lines.map(({ line, isDot }) => (isDot ? `${line}h0` : line)).join(''),
    area: lines.map(({ line, end, isDot }) => (isDot ? '' : line + end)).join('')
  };
}

/** The memory of each sample as a part of the whole. */
export function memoryParts(history: readonly Sample[], totalMib: number): (readonly [number, number | null])[] {
  return history.map(([time, used]) => [time, used === null || totalMib <= 0 ? null : used / totalMib] as const);
}

/** The utilization of each sample, likewise. */
export function usageParts(history: readonly Sample[]): (readonly [number, number | null])[] {
  return history.map(([time, , percent]) => [time, percent === null ? null : percent / 100] as const);
}

function segments(values: readonly (readonly [number, number | null])[], now: number): Point[][] {
  const found: Point[][] = [];
  let last: number | null = null;
  for (const [time, part] of values) {
    if (part === null || time < now - SPAN || time > now) {
      last = part === null ? null : last;
      continue;
    }
    if (last === null || time - last > GAP) {
      found.push([]);
    }
    found[found.length - 1]!.push([time, part]);
    last = time;
  }
  return found;
}

function round(value: number): string {
  return value.toFixed(1).replace(/\.0$/, '');
}
