import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { capabilitiesKey, tasksExtension, tasksProtocol } from "../src/protocol/capabilities.ts";
import { atLeast, median, round, type Aim, type Benchmark } from "./benchmark.ts";
import { load, exchange, type Target } from "./load.ts";
import type { PollServer } from "./poll-server.ts";

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
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "tasks/get",
    params: {
      taskId,
      _meta: {
        "io.modelcontextprotocol/protocolVersion": tasksProtocol,
        "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
        [capabilitiesKey]: { elicitation: {}, extensions: { [tasksExtension]: {} } },
      },
    },
  });
  const head = [
    "accept: application/json, text/event-stream",
    "content-type: application/json",
    `mcp-protocol-version: ${tasksProtocol}`,
    "mcp-method: tasks/get",
    `mcp-name: ${taskId}`,
  ];
  const bytes = Buffer.byteLength(body);
  const ask = (url: string, path: string, framing: readonly string[], framed: string) => {
    const { host, port } = new URL(url);
    const lines = [`POST ${path} HTTP/1.1`, `host: ${host}`, ...head, ...framing, "", framed];
    return { port: Number(port), request: lines.join("\r\n") };
  };
  const plain = [`content-length: ${bytes}`];
  const asked = {
    "stock SDK path": ask(
      server.url,
      "/mcp",
      ["transfer-encoding: chunked"],
      `${bytes.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    ),
    "mcp-tasks": ask(server.url, "/mcp", plain, body),
    "node:http and the store": ask(server.leastUrl, "/", plain, body),
    "node:http": ask(server.bareUrl, `/${taskId}`, plain, body),
  };
  const stock = await exchange(asked["stock SDK path"].port, asked["stock SDK path"].request);
  await exchange(asked["mcp-tasks"].port, asked["mcp-tasks"].request);
  const ours = await exchange(asked["mcp-tasks"].port, asked["mcp-tasks"].request);
  if (!isDeepStrictEqual(JSON.parse(stock.body), JSON.parse(ours.body))) throw new Error("the two ways differ");
  await cpuMicros(child, { path: `/${taskId}`, body: ours.body });
  const sized = async ({ port, request }: { port: number; request: string }) => {
    const { head: answered, body: text } = await exchange(port, request);
    return { port, request, answerBytes: Buffer.byteLength(answered) + 4 + Buffer.byteLength(text) };
  };
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
