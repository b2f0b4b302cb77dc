import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { request, type ClientRequest, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { capabilitiesKey, tasksExtension, tasksProtocol } from "../src/protocol/capabilities.ts";
import { below, median, quantile, round, type Benchmark } from "./benchmark.ts";
import type { Memory, Order } from "./listen-server.ts";

const subscribers = 10_000;
const changesPerSecond = 1_000;
const changingMs = 10_000;
const opening = 50;
const flood = { times: 3_000, length: 1_000 };

/** Subscribers of one process, one task each: how soon changes reach them, what they cost, and what a stalled one does. */
export const listen: Benchmark = async () => {
  const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-bench-"));
  const program = new URL("./listen-server.ts", import.meta.url).pathname;
  const execArgv = ["--expose-gc", ...process.execArgv];
  const child = fork(program, [join(folder, "tasks.db"), String(subscribers)], { execArgv });
  const streams: Stream[] = [];
  try {
    const [{ url, tasks }] = (await once(child, "message")) as [{ url: string; tasks: string[] }];
    const before = await order(child, { do: "measure" });
    for (let n = 0; n < tasks.length; n += opening)
      streams.push(...(await Promise.all(tasks.slice(n, n + opening).map((id) => subscribe(url, id)))));
    const open = await order(child, { do: "measure" });
    await order(child, { do: "change", perSecond: changesPerSecond, ms: changingMs });
    const late = streams.flatMap((stream) => stream.lateMs);

    // The last one stops reading, and its task changes all the more; then everybody else's.
    const stalled = streams.at(-1);
    stalled?.response.pause();
    const calm = await order(child, { do: "measure" });
    const flooded = await order(child, { do: "flood", task: tasks.length - 1, ...flood });
    for (const stream of streams) stream.lateMs.length = 0;
    await order(child, { do: "change", perSecond: changesPerSecond, ms: changingMs / 2 });
    const beside = streams.slice(0, -1).flatMap((stream) => stream.lateMs);

    const each = (open.rss - before.rss) / streams.length;
    const kept = flooded.heap - calm.heap;
    const told = (flood.times * flood.length) / 1_000;
    return {
      rows: [
        row(`${subscribers} subscribers, ${changesPerSecond} changes a second`, late),
        row("beside a reader that has stalled", beside),
        { what: "memory a subscriber, KB", value: round(each / 1_000, 1) },
        {
          what: `heap after ${told} KB of changes that a stalled reader didn't read, KB more`,
          value: round(kept / 1_000),
        },
      ],
      aims: [
        below("share of what it was told that a stalled reader's server keeps", 0.2, Math.max(0, kept) / 1_000 / told),
        below("delivery beside a stalled reader, median against without", 1.5, median(beside) / median(late)),
      ],
    };
  } finally {
    for (const { sent } of streams) sent.destroy();
    child.disconnect();
    await once(child, "exit");
    await rm(folder, { recursive: true });
  }
};

function row(what: string, late: readonly number[]) {
  return { what, changes: late.length, "p50 ms": round(median(late)), "p99 ms": round(quantile(late, 0.99)) };
}

async function order(child: ChildProcess, what: Order): Promise<Memory> {
  child.send(what);
  const [memory] = (await once(child, "message")) as [Memory];
  return memory;
}

interface Stream {
  readonly sent: ClientRequest;
  readonly response: IncomingMessage;
  /** From the writing of each change to its arrival here. */
  readonly lateMs: number[];
}

/** Resolves once the subscription is acknowledged. */
async function subscribe(url: string, taskId: string): Promise<Stream> {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": tasksProtocol,
    "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1.0.0" },
    [capabilitiesKey]: { extensions: { [tasksExtension]: {} } },
  };
  const params = { _meta: meta, notifications: { taskIds: [taskId] } };
  const sent = request(url, {
    method: "POST",
    agent: false,
    headers: {
      ...{ "content-type": "application/json", accept: "application/json, text/event-stream" },
      ...{ "mcp-protocol-version": tasksProtocol, "mcp-method": "subscriptions/listen" },
    },
  });
  sent.on("error", () => {});
  sent.end(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "subscriptions/listen", params }));
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  if (response.statusCode !== 200) throw new Error(`a subscription was answered ${response.statusCode}`);
  const lateMs: number[] = [];
  response.setEncoding("utf8").on("data", (text: string) => {
    const now = performance.timeOrigin + performance.now();
    for (const [, written] of text.matchAll(/"statusMessage":"(\d{13,}\.?\d*)"/g)) lateMs.push(now - Number(written));
  });
  response.on("error", () => {});
  await once(response, "data");
  return { sent, response, lateMs };
}
