import { fileURLToPath } from "node:url";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, type TaskError } from "mcp-tasks";
import { postgres } from "mcp-tasks/postgres";
import { onTestFinished, vi } from "vitest";
import { start, type Running } from "../cli/program.ts";
import { wire, type Wire } from "../wire/client.ts";
import { freshDatabase, query } from "./database.ts";
import { believe, toolsOf } from "./witness-tools.ts";

const tools = fileURLToPath(new URL("./witness-tools.ts", import.meta.url));

// Several programs start in each test, from their sources: on a busy machine that takes its time.
vi.setConfig({ testTimeout: 240_000 });

/** A run of a handler, as it said itself. Instants are milliseconds by the database's clock. */
export interface WitnessedRun {
  readonly task: string;
  readonly tool: string;
  readonly version: string;
  readonly owner: string;
  readonly attempt: number;
  readonly process: number;
  readonly started: number;
  readonly ended: number | null;
}

/** A worker process from the command line. */
export interface CliWorker extends Running {
  readonly pid: number;
  /** Sends SIGTERM and resolves when the process says that it drains. */
  drain(): Promise<void>;
}

/** A database, front ends in this process, and workers in processes of their own. All of it goes with the test. */
export interface Cluster {
  readonly url: string;
  /** A front end that runs nothing, and whoever has this token at it. */
  front(version?: string): Promise<(token?: string) => Wire>;
  worker(flags?: readonly string[], version?: string): Promise<CliWorker>;
  /** The runs until now, in the order in which they began. */
  runs(): Promise<WitnessedRun[]>;
  /** Resolves with the runs when there are as many as wanted, or they are as wanted. */
  untilRuns(wanted: number | ((runs: WitnessedRun[]) => boolean)): Promise<WitnessedRun[]>;
  open(gate: string): Promise<void>;
}

const witnesses = `
  CREATE TABLE run (
    id bigint GENERATED ALWAYS AS IDENTITY, task text, tool text, version text, owner text, attempt int, process int,
    started timestamptz, ended timestamptz);
  CREATE TABLE gate (name text)`;

export async function startCluster(): Promise<Cluster> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  await query(witnesses, [], database.url);

  const runs = () =>
    query<WitnessedRun>(
      `SELECT task, tool, version, owner, attempt, process, extract(epoch FROM started)::float8 * 1000 AS started,
        extract(epoch FROM ended)::float8 * 1000 AS ended FROM run ORDER BY run.started`,
      [],
      database.url,
    );

  return {
    url: database.url,
    runs,
    async front(version = "") {
      const store = postgres(database.url, { connections: 4 });
      const errors: TaskError[] = [];
      const tasks = createTasks({
        store,
        tools: toolsOf(version),
        owner: ({ clientId }) => clientId,
        onError: (error) => errors.push(error),
      });
      const handler = tasks.serve(() => new McpServer({ name: "cluster", version: "1" }), { authenticate: believe });
      const { url } = await handler.listen({ port: 0 });
      onTestFinished(async () => {
        await tasks.close();
        await store[Symbol.asyncDispose]();
        if (errors.length > 0) throw errors[0];
      });
      return (token) => wire(url, { patience: 60_000, ...(token === undefined ? {} : { token }) });
    },
    async worker(flags = [], version = "") {
      const env = { WITNESS_URL: database.url, TOOL_VERSION: version };
      const running = start(["worker", "--tools", tools, "--db", database.url, ...flags], { env });
      onTestFinished(async () => {
        running.child.kill("SIGKILL");
        await running.done;
      });
      await running.said("Working on");
      return {
        ...running,
        pid: running.child.pid ?? 0,
        async drain() {
          running.child.kill("SIGTERM");
          await running.said("Ending");
        },
      };
    },
    async untilRuns(wanted) {
      const enough = typeof wanted === "number" ? (list: WitnessedRun[]) => list.length >= wanted : wanted;
      for (;;) {
        const list = await runs();
        if (enough(list)) return list;
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    },
    open: async (gate) => void (await query("INSERT INTO gate VALUES ($1)", [gate], database.url)),
  };
}

/** How many of these runs went on at once at most. */
export function mostAtOnce(runs: readonly WitnessedRun[]): number {
  const counts = runs.map(
    ({ started }) =>
      runs.filter((other) => other.started <= started && (other.ended ?? Number.POSITIVE_INFINITY) > started).length,
  );
  return Math.max(0, ...counts);
}
