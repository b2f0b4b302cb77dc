import { Client } from "@modelcontextprotocol/client";
import { McpServer } from "@modelcontextprotocol/server";
import { channels } from "../src/channels.ts";
import { TaskClient } from "../src/client/index.ts";
import { createTasks, taskTool } from "../src/index.ts";
import { pollInterval } from "../src/protocol/wire.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import { atMost, round, type Benchmark } from "./benchmark.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const durations = [1, 3, 10, 30, 60, 300, 900, 3_600, 21_600].map((seconds) => seconds * second);
/** Each duration stands for many that are up to a tenth shorter or longer, so that no one falls on a poll. */
const phases = 200;
const live = [3 * second, 12 * second];

/** When to look next, by the time since the task's creation. */
type Pace = (ageMs: number) => number;

const ours: Pace = (ageMs) => {
  const facts = {
    status: "working",
    statusMessage: null,
    progress: null,
    ttlMs: null,
    result: null,
    error: null,
  } as const;
  return pollInterval({ ...facts, id: "", createdAt: 0, updatedAt: 0, turnedAt: 0, inputRequests: {} }, ageMs);
};
const paces = { "our interval": ours, "every 1 s": () => second, "every 5 s": () => 5 * second } satisfies Record<
  string,
  Pace
>;

interface Cost {
  readonly polls: number;
  /** From the end of the task to the poll that sees it. */
  readonly lateMs: number;
}

/** Polls that a task costs, and how late its end is seen: our interval beside fixed ones, worked out and checked live. */
export const economy: Benchmark = async () => {
  const worked = Object.entries(paces).flatMap(([name, pace]) =>
    durations.map((duration) => ({ name, duration, ...over(duration, pace) })),
  );
  const of = (name: keyof typeof paces) => worked.filter((one) => one.name === name);
  const polls = (name: keyof typeof paces) => of(name).reduce((sum, one) => sum + one.polls, 0);
  const added = of("our interval")
    .filter(({ duration }) => duration >= 10 * second)
    .map(({ lateMs, duration }) => lateMs / duration);
  const checked: Cost[] = [];
  for (const duration of live) checked.push(await tried(duration));
  return {
    rows: [
      ...worked.map(({ name, duration, polls: n, lateMs }) => row(name, duration, n, lateMs)),
      ...checked.map(({ polls: n, lateMs }, i) => row("our interval, live", live[i] ?? 0, n, lateMs)),
    ],
    aims: [
      atMost("polls over all durations, against every 1 s", 1 / 3, polls("our interval") / polls("every 1 s")),
      atMost("share added to a task of 10 s or longer, at worst", 0.1, Math.max(...added)),
    ],
  };
};

function row(pace: string, duration: number, polls: number, lateMs: number) {
  const share = `${round((lateMs / duration) * 100, 1)} %`;
  return {
    pace,
    "task takes": inWords(duration),
    polls: round(polls, 1),
    "seen late by, s": round(lateMs / second),
    share,
  };
}

function inWords(ms: number): string {
  if (ms >= hour) return `${ms / hour} h`;
  return ms >= minute ? `${ms / minute} min` : `${ms / second} s`;
}

/** The mean over the durations that this one stands for. */
function over(duration: number, pace: Pace): Cost {
  const costs = Array.from({ length: phases }, (_, n) => cost(duration * (0.9 + (0.2 * (n + 0.5)) / phases), pace));
  const mean = (pick: (one: Cost) => number) => costs.reduce((sum, one) => sum + pick(one), 0) / phases;
  return { polls: mean(({ polls }) => polls), lateMs: mean(({ lateMs }) => lateMs) };
}

function cost(duration: number, pace: Pace): Cost {
  let now = 0;
  let polls = 0;
  while (now < duration) {
    now += pace(now);
    polls += 1;
  }
  return { polls, lateMs: now - duration };
}

/** Our client on a real server, which it polls. */
async function tried(duration: number): Promise<Cost> {
  let endedAt = 0;
  let polls = 0;
  const tool = taskTool({
    name: "takes",
    async run(_args, task) {
      await task.sleep("that long", duration);
      endedAt = performance.now();
      return { content: [] };
    },
  });
  const count = ({ method }: { method: string }) => void (polls += method === "tasks/get" ? 1 : 0);
  await using store = sqlite(":memory:");
  await using tasks = createTasks({ store, tools: [tool] });
  await tasks.work();
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1.0.0" })).listen();
  const client = await new TaskClient(new Client({ name: "c", version: "1.0.0" }), { listen: false }).connect(url);
  channels.answered.subscribe(count);
  await client.callTool({ name: "takes" });
  const lateMs = performance.now() - endedAt;
  channels.answered.unsubscribe(count);
  await client.close();
  return { polls, lateMs };
}
