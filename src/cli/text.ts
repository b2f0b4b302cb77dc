import { stripVTControlCharacters } from "node:util";

/** Steers a terminal or turns the text around: C0, C1, line separators, and the marks for writing directions. */
const controls = /[\p{Cc}\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/gu;

/** A server's text, fit for a terminal: nothing is left of it but letters, tabs and ends of lines. */
export function clean(text: string): string {
  const plain = stripVTControlCharacters(text.replaceAll("\r\n", "\n"));
  return plain.replaceAll(controls, (mark) => (mark === "\n" || mark === "\t" ? mark : ""));
}

/** A server's text as part of a line. */
export const oneLine = (text: string): string => clean(text).replaceAll(/\s+/g, " ").trim();

const escaped = (mark: string) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** A value as JSON whose text holds no control character either: the value is the same. */
export function json(value: unknown, indent?: number): string {
  return JSON.stringify(value, undefined, indent).replaceAll(
    /[\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/g,
    escaped,
  );
}

/** A word of a command line, quoted for a shell where it must be. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./…-]+$/.test(word) ? word : `'${clean(word).replaceAll("'", String.raw`'\''`)}'`;
}

/** How long something took, in one or two units. */
export function elapsed(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  const [minutes, hours, days] = [60, 3_600, 86_400].map((unit) => Math.floor(seconds / unit)) as [
    number,
    number,
    number,
  ];
  if (days > 0) return `${days}d${hours % 24}h`;
  if (hours > 0) return `${hours}h${minutes % 60}m`;
  return minutes > 0 ? `${minutes}m${seconds % 60}s` : `${seconds}s`;
}

const wide =
  /\p{Emoji_Presentation}|[\u1100-\u115F\u2E80-\uA4CF\uAC00-\uD7A3\uF900-\uFAFF\uFE30-\uFE6F\uFF00-\uFF60\uFFE0-\uFFE6]/u;
const widthOf = (cluster: string) => (/^\p{Mark}+$/u.test(cluster) ? 0 : wide.test(cluster) ? 2 : 1);
const clusters = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** The beginning of a line that takes at most so many columns of a terminal. */
export function cut(line: string, columns: number): string {
  let used = 0;
  let kept = "";
  for (const { segment } of clusters.segment(line)) {
    used += widthOf(segment);
    if (used > columns) return kept;
    kept += segment;
  }
  return kept;
}

/** The shortest beginnings, from 8 characters, that tell these ids apart. One that looks like an option stays whole. */
export function shortIds(ids: readonly string[]): Map<string, string> {
  const short = (id: string) => {
    if (/^-[-ohV]/.test(id)) return id;
    for (let length = 8; length < id.length; length += 1) {
      const start = id.slice(0, length);
      if (ids.every((other) => other === id || !other.startsWith(start))) return start;
    }
    return id;
  };
  return new Map(ids.map((id) => [id, short(id)]));
}

/** The one id that this text means: itself, or the only one that it begins. Undefined: none; null: several. */
export function findId(text: string, ids: readonly string[]): string | undefined | null {
  if (ids.includes(text)) return text;
  const found = [...new Set(ids.filter((id) => text.length >= 4 && id.startsWith(text)))];
  return found.length > 1 ? null : found[0];
}

/** Rows with their columns under each other. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, i) => cell.padEnd(widths[i] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
