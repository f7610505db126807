/**
 * Which of our commands a button in an output executes. Pure. Its attributes may hold anything.
 */
import type { ReadonlyJSONObject } from '@lumino/coreutils';

const OURS = 'jupyter-gpu-kernel:';

/** The arguments of a link's command; null if they are no JSON, and JupyterLab executes nothing. */
export function argumentsOf(text: string): ReadonlyJSONObject | null {
  try {
    return JSON.parse(text) as ReadonlyJSONObject;
  } catch {
    return null;
  }
}

/**
 * Our commands that a link executes: its own command, or one among the arguments of another command, which may execute
 * it, as `apputils:run-first-enabled` does.
 */
export function ownCommands(command: string, args: ReadonlyJSONObject | null): string[] {
  if (args === null) {
    return [];
  }
  const found = new Set<string>();
  const values: unknown[] = [command, args]; // no recursion: the arguments may be nested deeper than the stack
  for (const value of values) {
    if (typeof value === 'string' && value.startsWith(OURS)) {
      found.add(value);
    } else if (typeof value === 'object' && value !== null) {
      for (const each of Object.values(value)) {
        values.push(each);
      }
    }
  }
  return [...found];
}
