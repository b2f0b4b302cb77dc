import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { CliError, exits, usage } from "./exit.ts";
import type { CommonOptions } from "./options.ts";
import { oneLine, shellWord } from "./text.ts";

/** A server over HTTP. The headers are sent to nobody else. */
export interface HttpTarget {
  readonly kind: "http";
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
}

/** A server that is started, and lives as long as the connection to it. */
export interface StdioTarget {
  readonly kind: "stdio";
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
}

export type RemoteTarget = HttpTarget | StdioTarget;

const entry = z.union([
  z.object({ url: z.string(), headers: z.record(z.string(), z.string()).optional() }),
  z.object({
    command: z.string(),
    args: z.array(z.string()).optional(),
    env: z.record(z.string(), z.string()).optional(),
    cwd: z.string().optional(),
  }),
]);
const configuration = z.object({
  mcpServers: z.record(z.string(), z.unknown()).optional(),
  servers: z.record(z.string(), z.unknown()).optional(),
});

/** The server that the options name. */
export function remoteTarget(options: CommonOptions): RemoteTarget {
  const { url, stdio, server, header = [], config } = options;
  const ways = [url, stdio, server].filter((way) => way !== undefined);
  if (ways.length !== 1) throw usage("Give one of --url, --stdio and --server.");
  if (config !== undefined && server === undefined) throw usage("--config goes with --server.");
  const headers = headersFrom(header);
  const target = url === undefined ? stdio && startable(stdio) : http(url, {});
  const found = target ?? configured(server ?? "", config);
  if (found.kind === "http") return { ...found, headers: { ...found.headers, ...headers } };
  if (header.length > 0) throw usage("--header goes with a server over HTTP.");
  return found;
}

/** The SQLite file that `--db` names. */
export function databaseFile({ db = "" }: CommonOptions, mustExist: boolean): string {
  if (db === "" || db.includes("://")) throw usage("--db takes the file of a SQLite store, or a postgres:// address.");
  if (mustExist && !existsSync(db))
    throw new CliError(exits.unreachable, "STORE_UNREADABLE", `--db: there is no file ${oneLine(db)}.`, {
      next: `ls -l ${shellWord(path.dirname(db))}`,
    });
  return db;
}

/** A command to type again shows no password: `PGPASSWORD` can hold it. */
const withoutPassword = (db: string) => db.replace(/^(postgres(?:ql)?:\/\/[^:/@]*):[^@/]*@/, "$1@");

/** What tells this server from others in the log. Of what may be secret, a query and arguments, it holds a digest. */
export function addressOf(target: RemoteTarget): string {
  const digest = (text: string) => `#${createHash("sha256").update(text).digest("hex").slice(0, 16)}`;
  if (target.kind === "http") {
    const { origin, pathname, search } = target.url;
    return `${origin}${pathname}${search === "" ? "" : digest(search)}`;
  }
  return `stdio:${target.command}${digest(JSON.stringify([target.args, target.cwd]))}`;
}

/** The address of the server that the options name, if they name one. */
export function namedAddress(options: CommonOptions): string | undefined {
  const named = [options.url, options.stdio, options.server].some((way) => way !== undefined);
  return named ? addressOf(remoteTarget(options)) : undefined;
}

/** The options again, for a command that goes on from here. The values of headers are left to whoever runs it. */
export function targetWords({ url, header, stdio, server, config, db, state }: CommonOptions): string[] {
  const name = (line: string) => line.slice(0, Math.max(0, line.indexOf(":")));
  const words = [
    ...(url === undefined ? [] : ["--url", url]),
    ...(header ?? []).flatMap((line) => ["--header", `${name(line)}: …`]),
    ...(server === undefined ? [] : ["--server", server]),
    ...(config === undefined ? [] : ["--config", config]),
    ...(db === undefined ? [] : ["--db", withoutPassword(db)]),
    ...(state === undefined ? [] : ["--state", state]),
    ...(stdio === undefined ? [] : ["--stdio", ...stdio]),
  ];
  return words.map(shellWord);
}

function http(text: string, headers: Readonly<Record<string, string>>): HttpTarget {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !["http:", "https:"].includes(url.protocol))
    throw usage(`"${text}" is no http or https URL.`);
  if (url.username !== "" || url.password !== "") throw usage("A URL may hold no password. Give it by --header.");
  url.hash = "";
  return { kind: "http", url, headers };
}

function startable(words: readonly string[]): StdioTarget {
  const [command = "", ...args] = words;
  return { kind: "stdio", command, args, env: environment(), cwd: process.cwd() };
}

function environment(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).filter((pair): pair is [string, string] => pair[1] !== undefined),
  );
}

function headersFrom(lines: readonly string[]): Record<string, string> {
  const headers = lines.map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw usage("--header takes 'Name: value'.");
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()] as const;
  });
  try {
    return Object.fromEntries(new Headers(headers.map((pair) => [...pair])));
  } catch {
    throw usage("--header holds characters that a header may not hold.");
  }
}

function configured(name: string, config: string | undefined): RemoteTarget {
  const file = config ?? [".mcp.json", "mcp.json"].find((one) => existsSync(one));
  if (file === undefined) throw usage("There is no .mcp.json or mcp.json here. Name one with --config.");
  let read: z.infer<typeof configuration>;
  try {
    read = configuration.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    throw usage(`${file} can't be read as an mcp.json.`);
  }
  const servers = { ...read.servers, ...read.mcpServers };
  if (!Object.hasOwn(servers, name))
    throw usage(`${file} has no server "${name}". It has: ${Object.keys(servers).join(", ") || "none"}.`);
  const { data } = entry.safeParse(servers[name]);
  if (data === undefined) throw usage(`${file}: the server "${name}" has neither a url nor a command.`);
  const filled = (text: string) => expanded(text, `${file}: the server "${name}"`);
  const all = (texts: Readonly<Record<string, string>> = {}) =>
    Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, filled(text)]));
  if ("url" in data)
    return http(filled(data.url), headersFrom(Object.entries(all(data.headers)).map((pair) => pair.join(":"))));
  const { command, args = [], env, cwd = "." } = data;
  const folder = path.resolve(path.dirname(file), filled(cwd));
  return { kind: "stdio", command: filled(command), args: args.map(filled), env: all(env), cwd: folder };
}

/** `${NAME}` and `${NAME:-default}` of the environment. */
function expanded(text: string, where: string): string {
  return text.replaceAll(/\$\{(\w+)(?::-([^}]*))?\}/g, (_, name: string, fallback?: string) => {
    const value = process.env[name] ?? fallback;
    if (value === undefined) throw usage(`${where} needs the environment variable ${name}.`);
    return value;
  });
}
