import { Client } from "@modelcontextprotocol/client";
import { TaskClient, TaskError, type LoggedTask } from "../client/index.ts";
import type { Duration } from "../clock.ts";
import { isTerminal } from "../protocol/status.ts";
import type { DetailedTask } from "../protocol/wire.ts";
import { createAsk } from "./ask.ts";
import { inTime, startProgram } from "./connect.ts";
import type { Context } from "./context.ts";
import { nothingAsked } from "./exit.ts";
import { meant, withoutTask } from "./remembered.ts";
import { type Responder, createResponder } from "./responder.ts";
import type { TaskSource } from "./source.ts";
import { openLog, startedFrom } from "./state.ts";
import { addressOf, remoteTarget } from "./target.ts";
import { oneLine } from "./text.ts";
import { version } from "./version.ts";

/** A server and our connection to it. */
export interface Remote extends TaskSource {
  readonly tasks: TaskClient;
  /** What was started there from here, as far as it isn't known to be over. */
  known(): Promise<LoggedTask[]>;
  /** Forgets a call, by its name in the log. A log that fails costs nobody what the call has become. */
  dropCall(call: string): Promise<void>;
  /** As of its responder. */
  readonly unanswered: Responder["unanswered"];
  /** What became of the task was shown: it is forgotten at the end, once that has left this process. */
  shown(taskId: string): void;
}

/** Whether the server knows the task no more: there is nothing to come back for. */
export const isGone = (error: unknown) =>
  error instanceof TaskError && (error.code === "TASK_NOT_FOUND" || error.code === "TASK_EXPIRED");

/** How long a single look or answer may take to come through. Milliseconds. */
const patience = 30_000;

/** How to be connected. `asks`: questions are put to whoever sits here. `wait`: how long it may take at most. */
export interface OpenOptions {
  readonly listen: boolean;
  readonly asks: boolean;
  readonly wait?: Duration | undefined;
}

/** Connects to the server that the options name. */
export async function openRemote(context: Context, how: OpenOptions): Promise<Remote> {
  const { options, out, interrupts, line } = context;
  const target = remoteTarget(options);
  const address = addressOf(target);
  const log = await openLog(options.state);
  const ask = how.asks && out.canAsk ? createAsk(out, interrupts) : undefined;
  const client = new Client({ name: "mcp-tasks", version });
  const responder = createResponder(ask, () => oneLine(client.getServerVersion()?.name ?? "The server"));
  const onError = troubleTeller(context);
  const tasks = new TaskClient(client, {
    input: responder.input,
    attended: responder.attended,
    log,
    server: address,
    listen: how.listen,
    callTimeout: "24h",
    onError,
  });
  const known = () => startedFrom(options.state, address);
  const connecting =
    target.kind === "http"
      ? tasks.connect(target.url, { requestInit: { headers: { ...target.headers } } })
      : tasks.connect(startProgram(target, context));
  await inTime(connecting, context, how.wait).catch(async (thrown: unknown) => {
    await tasks.close().catch(() => {});
    throw thrown;
  });

  const over = new Set<string>();

  /** The task as soon as it is so, for a command that shows it. */
  async function look(id: string, until: (task: DetailedTask) => boolean, deadline?: number): Promise<DetailedTask> {
    const run = tasks.resume(id, { keep: true, ...(deadline === undefined ? {} : { deadline }) });
    try {
      for await (const task of run) {
        if (!until(task)) continue;
        if (isTerminal(task.status)) over.add(id);
        return task;
      }
      await run.result();
      throw new Error("The task ended unseen.");
    } catch (thrown) {
      if (isGone(thrown)) over.add(id);
      throw thrown;
    } finally {
      run.detach();
    }
  }

  return {
    tasks,
    known,
    unanswered: responder.unanswered,
    dropCall: (call) => log.remove(call).catch(onError),
    shown: (taskId) => void over.add(taskId),
    async identify(text) {
      const [entry] = meant(text, await known(), line);
      if (entry?.taskId === null) throw withoutTask(entry, line);
      return entry?.taskId ?? text;
    },
    read: (id) => look(id, () => true, patience),
    async answer(id, key, response) {
      responder.prepare(key, response);
      const open = (task: DetailedTask) => task.status === "input_required" && Object.hasOwn(task.inputRequests, key);
      return await look(id, (task) => !open(task), patience);
    },
    async answerNext(task, give, byHand) {
      const { taskId, lastUpdatedAt } = task;
      if (client.getProtocolEra() !== "legacy") throw nothingAsked(taskId, line);
      const next = responder.next(give);
      const moved = ({ status, lastUpdatedAt: at }: DetailedTask) =>
        isTerminal(status) || (next.given && (status !== "input_required" || at !== lastUpdatedAt));
      const after = look(taskId, moved, byHand ? undefined : patience).catch((error: unknown) => {
        const waited = error instanceof TaskError && error.code === "DEADLINE_PASSED" && !next.given;
        // It may have told somebody already, who left without an answer.
        throw waited ? nothingAsked(taskId, line, "The task waits for input, but its server didn't ask again.") : error;
      });
      return await Promise.race([after, next.misfit]);
    },
    async cancel(id, wait) {
      // How it ends was not shown yet.
      await tasks.cancel(id, { keep: true });
      return await look(id, (task) => !wait || isTerminal(task.status), wait ? undefined : patience);
    },
    async [Symbol.asyncDispose]() {
      await out.flushed();
      await Promise.allSettled([...over].map((id) => tasks.forget(id)));
      await tasks.close().catch(() => {});
    },
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
