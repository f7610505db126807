/**
 * Values that a machine sent which may be compromised, or that another program may have changed. Pure.
 */

export type Facts = Readonly<Record<string, unknown>>;

export function isRecord(value: unknown): value is Facts {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Without keys for anything else. */
export function recordOf(value: unknown): Facts {
  return isRecord(value) ? value : {};
}

/** Empty for anything else. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** One line of printable text; '' for anything else. */
export function line(value: unknown, most: number): string {
  if (typeof value !== 'string') {
    return '';
  }
  // Control characters, and those that change the direction of text.
  const text = value
    .replace(/\s+/g, ' ')
    .replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu, '?')
    .trim();
  const characters = [...text];
  return characters.length > most ? `${characters.slice(0, most - 1).join('')}…` : text;
}
