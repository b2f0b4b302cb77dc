import { randomUUID } from "node:crypto";
import { appendFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { ProtocolError } from "@modelcontextprotocol/server";
import { TaskError, taskTool, type ElicitAnswer, type TaskContext, type TaskSettings, type TaskTool } from "mcp-tasks";
import { z } from "zod";
import type { Append } from "./log.ts";
import { boundMs, filler, type Operation, type Script, type ToolName } from "./script.ts";

/** Kills are the point here: only the poisonous tool may be given up for them. */
const patient = 1_000;

const settings: Record<ToolName, TaskSettings> = {
  script: { attempts: patient },
  careful: { recovery: "fail", onCancel: "unwind" },
  unwinding: { attempts: patient, onCancel: "unwind" },
  retrying: { attempts: patient, retry: { attempts: patient, backoff: 10 } },
  gives_up: { attempts: patient, retry: { attempts: 3, backoff: 10 } },
  bounded: { attempts: patient, timeout: boundMs },
  poison: { attempts: 2 },
};

const answerSchema = z.object({ value: z.string().min(1) });

/** Tools that do what their script says, and write down what they do and see. `folder` is for their own files. */
export function scriptTools(append: Append, folder: string): TaskTool[] {
  return Object.entries(settings).map(([name, task]) =>
    taskTool({
      name,
      inputSchema: z.object({ script: z.custom<Script>() }),
      task,
      run: ({ script }, context) => perform(script, context, append, folder),
    }),
  );
}

const said = ({ action, content }: ElicitAnswer<{ value: string }>) => (action === "accept" ? content!.value : action);

function timedOut(thrown: unknown): string {
  if (thrown instanceof TaskError && thrown.code === "WAIT_TIMED_OUT") return "timed out";
  throw thrown;
}

/** A value that tells when it was made, and that nothing else has. */
const newToken = () => `${Date.now()} ${randomUUID()}`;

async function perform(script: Script, task: TaskContext, append: Append, folder: string) {
  const seen: Record<string, string> = {};
  append(["run", task.id]);

  function see(key: string, value: string): void {
    append(["saw", task.id, key, value]);
    seen[key] = value;
  }

  function run(key: string): string {
    const token = newToken();
    append(["ran", task.id, key, token]);
    return token;
  }

  async function mark(key: string): Promise<number> {
    const token = await task.step(key, () => run(key));
    see(key, token);
    return parseInt(token, 10);
  }

  async function doOne(operation: Operation): Promise<void> {
    switch (operation.do) {
      case "step": {
        const { key, ms, deaf } = operation;
        const body = async ({ signal }: { signal: AbortSignal }) => {
          const token = run(key);
          await delay(ms, undefined, deaf ? {} : { signal });
          return token;
        };
        return see(key, await task.step(key, body));
      }
      case "once": {
        const { key, ms } = operation;
        const body = async ({ signal }: { signal: AbortSignal }) => {
          const token = run(key);
          await delay(ms, undefined, { signal });
          return token;
        };
        const value = await task.step(key, body, { once: true }).catch((thrown: unknown) => {
          if (thrown instanceof TaskError && thrown.code === "STEP_INTERRUPTED") return "interrupted";
          throw thrown;
        });
        return see(key, value);
      }
      case "failing": {
        const { key, ms } = operation;
        const body = async ({ signal }: { signal: AbortSignal }): Promise<string> => {
          const token = run(key);
          await delay(ms, undefined, { signal });
          throw new Error(token);
        };
        const said = await task.step(key, body).catch((thrown: Error) => {
          if (task.signal.aborted) throw thrown;
          return thrown.message;
        });
        return see(key, said);
      }
      case "ask": {
        const { keys, timeoutMs } = operation;
        if (timeoutMs !== null) await mark(`${keys[0]} before`);
        const limit = timeoutMs === null ? {} : { timeout: timeoutMs };
        await Promise.all(
          keys.map(async (key) => {
            const ask = { message: `${key}?`, schema: answerSchema, ...limit };
            see(key, await task.elicit.raw(key, ask).then(said, timedOut));
          }),
        );
        return;
      }
      case "sleep":
        await mark(`${operation.key} before`);
        await task.sleep(operation.key, operation.ms);
        await mark(`${operation.key} after`);
        return;
      case "poll": {
        const { key, every, ms } = operation;
        const began = await mark(`${key} before`);
        const look = () => (Date.now() >= began + ms ? run(key) : undefined);
        return see(key, await task.poll(key, { every }, look));
      }
      case "event":
        return see(operation.key, await task.event<string>(operation.key));
      case "report":
        return task.report(operation.said, { progress: 1 });
      case "flaky": {
        const file = join(folder, `${task.id} ${operation.key}`);
        appendFileSync(file, "x");
        if (statSync(file).size <= operation.times) throw new Error("flaky");
        return;
      }
      case "die":
        append(["died", task.id]);
        process.kill(process.pid, "SIGKILL");
        return new Promise<never>(() => {});
      case "together":
        await Promise.all(operation.operations.map(doOne));
    }
  }

  for (const operation of script.operations) await doOne(operation);
  if (script.end === "throw") throw new Error(`thrown ${script.tag}`);
  if (script.end === "refuse") throw new ProtocolError(-32042, `refused ${script.tag}`);
  return {
    content: [{ type: "text" as const, text: filler(script) }],
    structuredContent: { tag: script.tag, seen },
  };
}
