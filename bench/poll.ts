import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { atLeast, median, round, type Aim, type Benchmark } from "./benchmark.ts";
import { load, exchange, type Target } from "./load.ts";
import type { PollServer } from "./poll-server.ts";
import { inText, sized } from "./request.ts";

const rounds = 20;
const roundMs = 200;
/** Enough that the server is never idle. */
const connections = 8;

/**
 * Who answers: bare `node:http`, which knows the answer; the same with the least that a server with a store must do; our
 * own path; and the SDK's, which a request of untold length takes.
 */
const contenders = ["node:http", "node:http and the store", "mcp-tasks", "stock SDK path"] as const;
type Contender = (typeof contenders)[number];

/** `tasks/get` over HTTP, of tasks in several states, by the processor time that an answer takes the server. */
export const poll: Benchmark = async () => {
  const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-bench-"));
  const program = new URL("./poll-server.ts", import.meta.url).pathname;
  const child = fork(program, [join(folder, "tasks.db")]);
  try {
    const [server] = (await once(child, "message")) as [PollServer];
    const samples: Samples[] = [];
    for (const [task, taskId] of Object.entries(server.tasks)) samples.push(await measure(child, server, task, taskId));
    return { rows: samples.flatMap(rowsOf), aims: aimsOf(samples) };
  } finally {
    child.disconnect();
    await once(child, "exit");
    await rm(folder, { recursive: true });
  }
};

/** Microseconds of the server's CPU and answers a second, by contender, one of each round. */
interface Samples {
  readonly task: string;
  readonly micros: Readonly<Record<Contender, number[]>>;
  readonly rates: Readonly<Record<Contender, number[]>>;
}

async function measure(child: ChildProcess, server: PollServer, task: string, taskId: string): Promise<Samples> {
  const targets = await targetsOf(child, server, taskId);
  const empty = () =>
    Object.fromEntries(contenders.map((name) => [name, []])) as unknown as Record<Contender, number[]>;
  const samples = { task, micros: empty(), rates: empty() };
  for (let n = 0; n <= rounds; n++) {
    for (const name of n % 2 === 0 ? contenders : contenders.toReversed()) {
      const before = await cpuMicros(child, {});
      const { answers, ms } = await load(targets[name], connections, roundMs);
      const micros = ((await cpuMicros(child, {})) - before) / answers;
      // The first round warms up.
      if (n === 0) continue;
      samples.micros[name].push(micros);
      samples.rates[name].push((answers * 1_000) / ms);
    }
  }
  return samples;
}

function rowsOf({ task, micros, rates }: Samples) {
  return contenders.map((server) => ({
    ...{ task, server },
    "µs of CPU, least": round(Math.min(...micros[server]), 1),
    "µs of CPU, median": round(median(micros[server]), 1),
    "answers/s, most": Math.round(Math.max(...rates[server])),
  }));
}

/** The same question to each; what the two ways answer must be the same, and is what `node:http` is told to answer. */
async function targetsOf(child: ChildProcess, server: PollServer, taskId: string): Promise<Record<Contender, Target>> {
  const question = { method: "tasks/get", name: taskId, params: { taskId } };
  const asked = {
    "stock SDK path": inText({ ...question, url: server.url, chunked: true }),
    "mcp-tasks": inText({ ...question, url: server.url }),
    "node:http and the store": inText({ ...question, url: server.leastUrl }),
    "node:http": inText({ ...question, url: `${server.bareUrl}/${taskId}` }),
  };
  const answer = async ({ port, request }: ReturnType<typeof inText>) => (await exchange(port, request)).body;
  const stock = await answer(asked["stock SDK path"]);
  await answer(asked["mcp-tasks"]);
  const ours = await answer(asked["mcp-tasks"]);
  if (!isDeepStrictEqual(JSON.parse(stock), JSON.parse(ours))) throw new Error("the two ways differ");
  await cpuMicros(child, { path: `/${taskId}`, body: ours });
  return {
    "node:http": await sized(asked["node:http"]),
    "node:http and the store": await sized(asked["node:http and the store"]),
    "mcp-tasks": await sized(asked["mcp-tasks"]),
    "stock SDK path": await sized(asked["stock SDK path"]),
  };
}

async function cpuMicros(child: ChildProcess, message: object): Promise<number> {
  const told = once(child, "message") as Promise<[number]>;
  child.send(message);
  return (await told)[0];
}

/** Ratios of neighbours in time: the machine is not the same for long. */
function aimsOf(samples: readonly Samples[]): Aim[] {
  return samples.flatMap(({ task, micros }) => {
    const against = (other: Contender) =>
      median(micros[other].map((value, n) => value / (micros["mcp-tasks"][n] ?? Number.NaN)));
    return [
      atLeast(`${task}: answers for the same CPU time, of those of node:http`, 0.6, against("node:http")),
      atLeast(`${task}: the same, of those of node:http and the store`, 0.8, against("node:http and the store")),
      atLeast(`${task}: the same, of those of the stock SDK path`, 5, against("stock SDK path")),
    ];
  });
}
