import type { Attributes, BatchObservableResult, Meter } from "@opentelemetry/api";
import { channels } from "../channels.ts";
import type { Census, QueueCount } from "../store/store.ts";
import { listen } from "./listen.ts";

const seconds = (ms: number) => ms / 1_000;

/** Metrics of what happens in this process and, with a store, of what waits in it. The function returned ends them. */
export function measure(meter: Meter, store: { census(): Promise<Census> } | undefined): () => void {
  const stops = [...measureTasks(meter), measureMethods(meter)];
  if (store !== undefined) stops.push(countTasks(meter, store));
  return () => stops.forEach((stop) => stop());
}

function measureTasks(meter: Meter): (() => void)[] {
  const created = meter.createCounter("mcp_tasks.created", { unit: "{task}", description: "Tasks that were created." });
  const startTime = meter.createHistogram("mcp_tasks.start.duration", {
    unit: "s",
    description: "From a task's creation to the first run of its handler.",
  });
  const runTime = meter.createHistogram("messaging.process.duration", {
    unit: "s",
    description: "How long attempts took.",
  });
  const refused = meter.createCounter("mcp_tasks.refused_writes", {
    unit: "{write}",
    description: "Writes of attempts that had lost their lease.",
  });
  return [
    listen(channels.created, ({ tool }) => created.add(1, { "gen_ai.tool.name": tool })),
    listen(channels.started, ({ tool, waitedMs }) => {
      if (waitedMs !== null) startTime.record(seconds(waitedMs), { "gen_ai.tool.name": tool });
    }),
    listen(channels.ended, ({ started, end, ms }) =>
      runTime.record(seconds(ms), {
        "messaging.system": "mcp_tasks",
        "messaging.operation.name": "process",
        "gen_ai.tool.name": started.tool,
        "mcp_tasks.attempt.end": end,
        ...(end === "failed" || end === "lost" ? { "error.type": end } : {}),
      }),
    ),
    listen(channels.refused, ({ verb }) => refused.add(1, { "mcp_tasks.verb": verb })),
  ];
}

function measureMethods(meter: Meter): () => void {
  const duration = meter.createHistogram("mcp.server.operation.duration", {
    unit: "s",
    description: "How long the methods tasks/* took; its count by method is that of polls, answers and cancels.",
  });
  return listen(channels.answered, ({ method, error, ms }) =>
    duration.record(seconds(ms), { "mcp.method.name": method, ...(error === null ? {} : { "error.type": error }) }),
  );
}

function countTasks(meter: Meter, store: { census(): Promise<Census> }): () => void {
  const live = meter.createObservableGauge("mcp_tasks.live", {
    unit: "{task}",
    description: "Unfinished tasks by tool and status.",
  });
  const depth = meter.createObservableGauge("mcp_tasks.queue.depth", {
    unit: "{task}",
    description: "Tasks that a worker could take now.",
  });
  const age = meter.createObservableGauge("mcp_tasks.queue.age", {
    unit: "s",
    description: "How long the oldest of them could have been taken.",
  });
  const instruments = [live, depth, age];
  // What was counted once and is gone is none now: a gauge would show its last value for ever.
  const liveSeen = new Map<string, Attributes>();
  const queuesSeen = new Map<string, Attributes>();

  async function observe(observer: BatchObservableResult): Promise<void> {
    const { live: tasks, queues } = await store.census();
    const counts = tasks.map(({ tool, status, count }) => ({
      attributes: { "gen_ai.tool.name": tool, "mcp_tasks.status": status },
      value: count,
    }));
    for (const { attributes, value } of withZeros(counts, liveSeen)) observer.observe(live, value, attributes);
    const named = (pick: (queue: QueueCount) => number) =>
      queues.map((queue) => ({ attributes: { "messaging.destination.name": queue.queue }, value: pick(queue) }));
    for (const { attributes, value } of withZeros(
      named(({ count }) => count),
      queuesSeen,
    ))
      observer.observe(depth, value, attributes);
    for (const { attributes, value } of withZeros(
      named(({ oldestMs }) => seconds(oldestMs)),
      queuesSeen,
    ))
      observer.observe(age, value, attributes);
  }
  meter.addBatchObservableCallback(observe, instruments);
  return () => meter.removeBatchObservableCallback(observe, instruments);
}

interface Point {
  readonly attributes: Attributes;
  readonly value: number;
}

function withZeros(points: readonly Point[], seen: Map<string, Attributes>): readonly Point[] {
  const keyed = new Map(points.map((point) => [JSON.stringify(point.attributes), point]));
  for (const [key, { attributes }] of keyed) seen.set(key, attributes);
  return [...seen].map(([key, attributes]) => keyed.get(key) ?? { attributes, value: 0 });
}
