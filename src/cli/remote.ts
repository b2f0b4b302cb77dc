import path from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { Client, type ElicitResult } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { TaskClient, TaskError, type InputContext, type InputHandlers, type LoggedTask } from "../client/index.ts";
import type { InputRequest, InputResponse } from "../protocol/input.ts";
import { isTerminal } from "../protocol/status.ts";
import type { DetailedTask } from "../protocol/wire.ts";
import { createAsk } from "./ask.ts";
import type { Context } from "./context.ts";
import { CliError, exits, nextAfter, usage } from "./exit.ts";
import type { TaskSource } from "./source.ts";
import { openLog, startedFrom } from "./state.ts";
import { addressOf, remoteTarget, type StdioTarget } from "./target.ts";
import { findId, oneLine } from "./text.ts";
import { version } from "./version.ts";

/** A server and our connection to it. */
export interface Remote extends TaskSource {
  readonly tasks: TaskClient;
  /** What was started there from here, as far as it isn't known to be over. */
  known(): Promise<LoggedTask[]>;
}

/** How long a server may take to greet us, and a single look or answer to come through. Milliseconds. */
const patience = 30_000;

/** Connects to the server that the options name. `asks`: questions are put to whoever sits here. */
export async function openRemote(context: Context, how: { listen: boolean; asks: boolean }): Promise<Remote> {
  const { options, out, interrupts, line } = context;
  const target = remoteTarget(options);
  const address = addressOf(target);
  const log = await openLog(options.state);
  const ask = how.asks && out.canAsk ? createAsk(out, interrupts) : undefined;
  const prepared = new Map<string, InputResponse>();
  const client = new Client({ name: "mcp-tasks", version });

  const answer = async (request: InputRequest, { key, taskId, signal }: InputContext) => {
    const from = oneLine(client.getServerVersion()?.name ?? "The server");
    const later = taskId === undefined ? "stop" : "later";
    return (prepared.get(key) ?? (await ask?.({ request, from, signal, later }))) as ElicitResult | undefined;
  };
  // Declared in any case: somebody may answer later, or elsewhere.
  const input: InputHandlers = {
    elicit: (params, about) => answer({ method: "elicitation/create", params: { ...params } }, about),
    visit: (params, about) => answer({ method: "elicitation/create", params: { ...params } }, about),
  };
  const tasks = new TaskClient(client, {
    input,
    log,
    server: address,
    listen: how.listen,
    callTimeout: "24h",
    onError: troubleTeller(context),
  });
  const known = () => startedFrom(options.state, address);
  const connecting =
    target.kind === "http"
      ? tasks.connect(target.url, { requestInit: { headers: { ...target.headers } } })
      : tasks.connect(startProgram(target, context));
  await inTime(connecting, context).catch(async (thrown: unknown) => {
    await tasks.close().catch(() => {});
    throw thrown;
  });

  async function look(id: string, until: (task: DetailedTask) => boolean, deadline?: number): Promise<DetailedTask> {
    const run = tasks.resume(id, deadline === undefined ? {} : { deadline });
    try {
      for await (const task of run) {
        if (!until(task)) continue;
        // Its outcome is about to be shown: once that was taken, the log forgets the task.
        if (isTerminal(task.status)) await run.result().catch(() => {});
        return task;
      }
      throw await run.result().then(
        () => new Error("The task ended unseen."),
        (error: unknown) => error,
      );
    } finally {
      run.detach();
    }
  }

  return {
    tasks,
    known,
    async identify(text) {
      const found = findId(
        text,
        (await known()).flatMap(({ taskId }) => taskId ?? []),
      );
      if (found === null) throw usage(`"${oneLine(text)}" is the beginning of several ids.`, line("ls"));
      return found ?? text;
    },
    read: (id) => look(id, () => true, patience),
    async answer(id, key, response) {
      prepared.set(key, response);
      const open = (task: DetailedTask) => task.status === "input_required" && Object.hasOwn(task.inputRequests, key);
      return await look(id, (task) => !open(task), patience);
    },
    async cancel(id, wait) {
      // How it ends was not shown yet.
      await tasks.cancel(id, { keep: true });
      return await look(id, (task) => !wait || isTerminal(task.status), wait ? undefined : patience);
    },
    [Symbol.asyncDispose]: () => tasks.close().catch(() => {}),
  };
}

/** Says, once in a row, what goes wrong in passing: a look at a task that is repeated, a log that can't be written. */
function troubleTeller({ out }: Context): (error: unknown) => void {
  let said = "";
  return (error) => {
    if (!(error instanceof TaskError) || error.message === said) return;
    said = error.message;
    out.say(`  ${oneLine(said)}${error.code.startsWith("LOG_") ? "" : " Trying again."}`);
  };
}

function startProgram({ command, args, env, cwd }: StdioTarget, { out }: Context): StdioClientTransport {
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

async function inTime(connecting: Promise<unknown>, { line }: Context): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("It doesn't answer.")), patience);
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
