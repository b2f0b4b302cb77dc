import { readFileSync } from "node:fs";
import { InvalidArgumentError, Option, type Command } from "commander";
import { milliseconds, type Duration } from "../clock.ts";
import { usage } from "./exit.ts";

/** What every command may be told. */
export interface CommonOptions {
  readonly url?: string;
  readonly header?: readonly string[];
  readonly stdio?: readonly string[];
  readonly server?: string;
  readonly config?: string;
  readonly db?: string;
  readonly state?: string;
  readonly json?: boolean;
}

const collect = (value: string, before: readonly string[] = []) => [...before, value];
const given = "Server (give one):";

/** Adds the ways to name a server, and, for those that work there, its database. */
export function withTarget(command: Command, kinds: { readonly remote?: boolean; readonly db?: boolean }): Command {
  const option = (flags: string, text: string, group?: string) => {
    const made = new Option(flags, text);
    if (group !== undefined) made.helpGroup(group);
    command.addOption(made);
    return made;
  };
  if (kinds.remote === true) {
    option("--url <url>", "a server's Streamable HTTP endpoint", given);
    option("--header <header>", "'Name: value', sent to that server only; may be repeated", given).argParser(collect);
    option("--stdio <command>", "a program to start; takes the rest of the line", given).argParser(
      (text) => JSON.parse(text) as string[],
    );
    option("--server <name>", "a server of an mcp.json", given);
    option("--config <file>", "the mcp.json (default: .mcp.json or mcp.json in this folder)", given);
    option("--state <dir>", "where to remember tasks (default: $XDG_STATE_HOME/mcp-tasks)");
  }
  const instead = kinds.remote === true ? ", in place of the server" : "";
  if (kinds.db === true)
    option(
      "--db <file>",
      `a server's own task database: a file, or postgres://…${instead}`,
      instead === "" ? undefined : given,
    );
  option("--json", "one JSON document on stdout, errors as one JSON line on stderr");
  return command;
}

/** Examples under a command's help. */
export function examples(command: Command, lines: readonly string[]): Command {
  return command.addHelpText("after", `\nExamples:\n${lines.map((line) => `  ${line}`).join("\n")}`);
}

/** An option that may be repeated. */
export const repeated = (flags: string, text: string) => new Option(flags, text).argParser(collect);

/** An option that takes a length of time. */
export function duration(text: string): Duration {
  try {
    milliseconds(text as Duration);
    return text as Duration;
  } catch {
    throw new InvalidArgumentError("Write a number with ms, s, m, h or d: 90s, 5m.");
  }
}

/** An option that takes a whole number from 1. */
export function count(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError("Write a whole number from 1.");
  return Number(text);
}

/** `k=v` words as pairs. */
export function pairs(words: readonly string[]): [string, string][] {
  return words.map((word) => {
    const at = word.indexOf("=");
    if (at < 1) throw usage(`"${word}" is no name=value.`);
    return [word.slice(0, at), word.slice(at + 1)];
  });
}

/** The object of `--args-json`: JSON, a file after `@`, or standard input for `-`. */
export function argumentsFrom(text: string): Record<string, unknown> {
  const [source, where] =
    text === "-" ? [0, "standard input"] : text.startsWith("@") ? [text.slice(1), text] : [null, "it"];
  let value: unknown;
  try {
    value = JSON.parse(source === null ? text : readFileSync(source, "utf8"));
  } catch (cause) {
    const unread = (cause as NodeJS.ErrnoException).code !== undefined;
    throw usage(`--args-json: ${where} ${unread ? "can't be read" : "is no JSON"}.`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw usage(`--args-json: ${where} is no JSON object.`);
  return value as Record<string, unknown>;
}

/** An id, or the beginning of one, that begins with a dash, and is none of our options. */
const dashed = /^-[\w-]{21}$|^-[^-ohV][\w-]{2,19}$/;

/**
 * The command line in a form that the parser can take: `--stdio` has the rest of the line, `--arg` and `--set` may be
 * followed by several pairs, and a task's id may begin with a dash.
 */
export function prepared(words: readonly string[]): string[] {
  const at = words.indexOf("--stdio");
  const rest = at < 0 ? [] : words.slice(at + 1);
  if (rest[0] === "--") rest.shift();
  if (at >= 0 && rest.length === 0) throw usage("--stdio needs the program to start.");
  const line: string[] = [];
  const ids: string[] = [];
  let several: string | undefined;
  for (const word of at < 0 ? words : words.slice(0, at)) {
    if (["--arg", "--set"].includes(line.at(-1) ?? "")) several = line.at(-1);
    else if (several !== undefined && /^[^-=][^=]*=/.test(word)) line.push(several);
    else several = undefined;
    if (dashed.test(word) && !words.includes("--")) ids.push(word);
    else line.push(word);
  }
  const program = rest.length === 1 && /\s/.test(rest[0] ?? "") ? (rest[0] ?? "").trim().split(/\s+/) : rest;
  const stdio = at < 0 ? [] : [`--stdio=${JSON.stringify(program)}`];
  return [...line, ...stdio, ...(ids.length === 0 ? [] : ["--", ...ids])];
}
