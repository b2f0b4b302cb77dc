import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { startFixture } from "../test/fixture/start.ts";
import { startServer } from "../test/postgres/server.ts";
import { wire, type Message, type Wire } from "../test/wire/client.ts";
import { below, median, quantile, round, type Benchmark } from "./benchmark.ts";

/** Milliseconds of each try, by what was measured. */
type Delays = Map<string, number[]>;

const rounds = 60;
const warmUp = 10;
const elsewhere = "cancel, told at another front end";
const aborted = "cancel, until its handler is aborted in a third process";
const accept = { action: "accept", content: { value: "1" } };
const tells = (taskId: string, status: string) => (message: Message) =>
  message.method === "notifications/tasks" && message.params?.taskId === taskId && message.params.status === status;

/** From a request at one front end to what it brings about elsewhere: two front ends and a worker, on one Postgres. */
export const notify: Benchmark = async () => {
  await using server = await startServer({ fsync: "on" });
  // The first one makes the schema.
  await using front = await startFixture(["--db", server.url, "--role", "front"]);
  await using other = await startFixture(["--db", server.url, "--role", "front"]);
  await using _worker = await startFixture(["--db", server.url, "--role", "worker"]);
  const [here, there] = [wire(front.url), wire(other.url)];
  const delays: Delays = new Map();
  const note = (what: string, ms: number) => delays.set(what, [...(delays.get(what) ?? []), ms]);
  const folder = await mkdtemp(path.join(tmpdir(), "mcp-tasks-notify-"));
  try {
    for (let n = 0; n < warmUp + rounds; n++) {
      if (n === warmUp) delays.clear();
      note("cancel, told at the same front end", await untilTold(here, here));
      note(elsewhere, await untilTold(here, there));
      note("last answer, until its end is told at another front end", await untilAnswered(here, there));
      note(aborted, await untilAborted(here, path.join(folder, `${n}`)));
    }
  } finally {
    await rm(folder, { recursive: true });
  }
  const rows = [...delays].map(([what, of]) => ({
    what,
    "p50 ms": round(median(of)),
    "p99 ms": round(quantile(of, 0.99)),
    "most ms": round(Math.max(...of)),
  }));
  return {
    rows,
    aims: [
      below("ms from a cancel to the notification at another front end, p50", 50, median(delays.get(elsewhere) ?? [])),
      below(
        "ms from a cancel to the handler's abort in a third process, most",
        1_000,
        Math.max(...(delays.get(aborted) ?? [])),
      ),
    ],
  };
};

/** A task that asks, and a stream of what becomes of it. */
async function asking(here: Wire, there: Wire) {
  const taskId = await here.start("ask_twice");
  const stream = await there.listen([taskId]);
  await stream.find(tells(taskId, "input_required"));
  return { taskId, stream };
}

async function untilTold(here: Wire, there: Wire): Promise<number> {
  const { taskId, stream } = await asking(here, there);
  const told = stream.find(tells(taskId, "cancelled"));
  const began = performance.now();
  await Promise.all([here.cancel(taskId), told]);
  const ms = performance.now() - began;
  await stream.close();
  return ms;
}

async function untilAnswered(here: Wire, there: Wire): Promise<number> {
  const { taskId, stream } = await asking(here, there);
  await here.update(taskId, { first: accept });
  await stream.find(({ params }) => params?.inputRequests?.second !== undefined);
  const told = stream.find(tells(taskId, "completed"));
  const began = performance.now();
  await Promise.all([here.update(taskId, { second: accept }), told]);
  const ms = performance.now() - began;
  await stream.close();
  return ms;
}

/** By what the handler writes when it is aborted: the machine's clock is the same for all processes. */
async function untilAborted(here: Wire, file: string): Promise<number> {
  const taskId = await here.start("journal", { path: file, seconds: 60 });
  const lines = async () => (await readFile(file, "utf8").catch(() => "")).trimEnd().split("\n");
  while ((await lines())[0] === "") await new Promise((resolve) => setTimeout(resolve, 2));
  const began = performance.timeOrigin + performance.now();
  await here.cancel(taskId);
  await here.until(taskId, "cancelled");
  return Number((await lines())[1]?.split(" ")[3]) - began;
}
