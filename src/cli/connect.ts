import path from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { milliseconds, type Duration } from "../clock.ts";
import type { Context } from "./context.ts";
import { CliError, exits, nextAfter } from "./exit.ts";
import type { StdioTarget } from "./target.ts";
import { oneLine } from "./text.ts";

/** How long a server may take to greet us. Milliseconds. */
const greetWithin = 30_000;

/** The way to a program, which is started once the client connects. */
export function startProgram({ command, args, env, cwd }: StdioTarget, { out }: Context): StdioClientTransport {
  const apart =
    process.platform !== "win32" && [process.stdin, process.stdout, process.stderr].some((one) => one.isTTY);
  const launcher = new URL(`own-group${path.extname(import.meta.url)}`, import.meta.url).pathname;
  const [program, ...words]: [string, ...string[]] = apart
    ? [process.execPath, launcher, command, ...args]
    : [command, ...args];
  const transport = new StdioClientTransport({
    command: program,
    args: words,
    env: { ...env },
    cwd,
    stderr: "pipe",
  });
  const { stderr } = transport;
  if (stderr !== null)
    createInterface({ input: stderr as Readable }).on("line", (text) => out.say(`| ${oneLine(text)}`));
  return transport;
}

/** Waits for a client to be connected, no longer than `wait`. Throws `UNAUTHORISED` or `UNREACHABLE`. */
export async function inTime(connecting: Promise<unknown>, { line }: Context, wait?: Duration): Promise<void> {
  const ms = wait === undefined ? greetWithin : Math.min(greetWithin, milliseconds(wait));
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("It doesn't answer.")), ms);
  });
  try {
    await Promise.race([connecting, late]);
  } catch (cause) {
    const refused = statusOf(cause);
    if (refused === 401 || refused === 403) {
      const message = `The server refuses whoever has no valid credentials for it (HTTP ${refused}).`;
      const next = nextAfter(exits.unauthorised, line);
      throw new CliError(exits.unauthorised, "UNAUTHORISED", message, { cause, next });
    }
    const message =
      refused === undefined
        ? `The server can't be reached. ${reasonOf(cause)}`
        : `No MCP server answers at this URL (HTTP ${refused}).`;
    throw new CliError(exits.unreachable, "UNREACHABLE", message, { cause, next: line("doctor") });
  } finally {
    clearTimeout(timer);
  }
}

function statusOf(thrown: unknown): number | undefined {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    const { status } = error as { status?: unknown };
    if (typeof status === "number") return status;
    if (error.name === "UnauthorizedError") return 401;
    if (error.name === "InsufficientScopeError") return 403;
  }
  return undefined;
}

function reasonOf(thrown: unknown): string {
  let error = thrown;
  while (error instanceof Error && error.cause instanceof Error) error = error.cause;
  const { code, message = "" } = error as { code?: unknown; message?: string };
  if (message !== "") return oneLine(message);
  return typeof code === "string" ? code : "";
}
