import { createNoopMeter, type MeterProvider } from "@opentelemetry/api";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { channels } from "../src/channels.ts";
import { instrument } from "../src/otel/index.ts";
import { taskTool } from "../src/tool.ts";
import { below, median, round, timed, type Benchmark } from "./benchmark.ts";
import { embedded, type Embedded } from "./embedded.ts";

const rounds = 7;
const tasksPerRound = 300;
const asks = 10_000_000;
/** How often a task asks for subscribers: at its creation, at its attempt's begin (twice), and once at each write. */
const asksPerTask = 4;

const empty = taskTool({ name: "empty", run: () => ({ content: [] }) });
const meterProvider: MeterProvider = { getMeter: () => createNoopMeter() };

/** What it costs that tasks can be watched: while nobody does, and with spans that are kept in memory. */
export const telemetry: Benchmark = async () => {
  await using bench = await embedded([empty]);
  await run(bench);
  const alone: number[] = [];
  const watched: number[] = [];
  for (let n = 0; n < rounds; n++) {
    alone.push(await timed(() => run(bench)));
    const tracerProvider = new BasicTracerProvider({
      spanProcessors: [new SimpleSpanProcessor(new InMemorySpanExporter())],
    });
    using _watching = instrument({ tracerProvider, meterProvider });
    watched.push(await timed(() => run(bench)));
  }
  const perTask = (times: readonly number[]) => (median(times) / tasksPerRound) * 1000;
  const askNs = (askTime() / asks) * 1e6;
  const share = (askNs * asksPerTask) / (perTask(alone) * 1000);
  return {
    rows: [
      { what: "empty task, nobody listens", "µs a task": round(perTask(alone), 1) },
      { what: "empty task, with spans in memory", "µs a task": round(perTask(watched), 1) },
      { what: "asking a channel for subscribers", "ns each": round(askNs, 2) },
    ],
    aims: [below("share of a task's time that asking for subscribers takes", 0.001, share)],
  };
};

async function run(bench: Embedded): Promise<void> {
  const ids = await Promise.all(Array.from({ length: tasksPerRound }, () => bench.start(empty)));
  await Promise.all(ids.map((id) => bench.engine.settled(id, "", AbortSignal.timeout(60_000))));
}

function askTime(): number {
  let heard = 0;
  const begin = performance.now();
  for (let n = 0; n < asks; n++) if (channels.created.hasSubscribers) heard += 1;
  const took = performance.now() - begin;
  if (heard > 0) throw new Error("somebody listens");
  return took;
}
