import { context, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { McpServer } from "@modelcontextprotocol/server";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { channels, createTasks, taskTool } from "../../src/index.ts";
import { instrument } from "../../src/otel/index.ts";
import { claimOne, create, newTask } from "../../src/store/contract/kit.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { createEngine } from "../../src/engine/engine.ts";
import { manualClock } from "../../src/testing.ts";
import { wire } from "../wire/client.ts";

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const spanId = "00f067aa0ba902b7";
const traceparent = `00-${traceId}-${spanId}-01`;

beforeAll(() => void context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());

const greet = taskTool({
  name: "greet",
  async run(_args, task) {
    await task.step("look", () => trace.getTracer("handler").startSpan("inside").end());
    await task.elicit("name", { message: "Who?", schema: z.object({ name: z.string() }) });
    return { content: [] };
  },
});

/** Spans and metrics that end up in memory. */
function collecting() {
  const spans = new InMemorySpanExporter();
  const metrics = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: metrics });
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
  const meterProvider = new MeterProvider({ readers: [reader] });
  return {
    spans,
    tracerProvider,
    meterProvider,
    /** Every point, as its metric's name with its attributes' values, and its value. */
    async points(): Promise<Record<string, unknown>> {
      metrics.reset();
      await reader.forceFlush();
      const data = metrics.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics));
      return Object.fromEntries(
        data.flatMap(({ descriptor, dataPoints }) =>
          dataPoints.map(({ attributes, value }) => [
            [descriptor.name, ...Object.values(attributes)].join(" "),
            typeof value === "number" ? value : value.count,
          ]),
        ),
      );
    },
  };
}

test("a task's attempts link to the call that created it, and the handler's own spans are their children", async () => {
  const { spans, tracerProvider, meterProvider } = collecting();
  using _watching = instrument({ tracerProvider, meterProvider });
  trace.setGlobalTracerProvider(tracerProvider);
  await using store = sqlite(":memory:");
  await using tasks = createTasks({ store, tools: [greet] });
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" })).listen();
  await tasks.work();
  const raw = wire(url);
  const taskId = await raw.start("greet", {}, { meta: { traceparent, tracestate: "vendor=1" } });
  await raw.until(taskId, "input_required");
  await raw.update(taskId, { name: { action: "accept", content: { name: "Ada" } } });
  await raw.until(taskId, "completed");
  await tasks.close();
  trace.disable();

  const [created, ...others] = spans.getFinishedSpans();
  expect(created).toMatchObject({ name: "create greet", parentSpanContext: { traceId, spanId, isRemote: true } });
  const attempts = others.filter(({ name }) => name === "process greet");
  expect(attempts.map(({ attributes }) => attributes["mcp_tasks.attempt.end"])).toEqual(["parked", "completed"]);
  for (const span of attempts) {
    expect(span.links).toMatchObject([{ context: { traceId, spanId } }]);
    expect(span.links[0]?.context.traceState?.serialize()).toBe("vendor=1");
    expect(span.attributes).toMatchObject({ "messaging.message.id": taskId, "gen_ai.tool.name": "greet" });
    expect(span.parentSpanContext).toBeUndefined();
  }
  const [inside, ...more] = others.filter(({ name }) => name === "inside");
  expect(inside?.parentSpanContext?.spanId).toBe(attempts[0]?.spanContext().spanId);
  expect(more).toEqual([]);
});

test("a trace context that is not valid is no trace", async () => {
  const created: unknown[] = [];
  const listener = ({ trace }: { trace: unknown }) => void created.push(trace);
  channels.created.subscribe(listener);
  await using store = sqlite(":memory:");
  await using tasks = createTasks({ store, tools: [greet] });
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" })).listen();
  const raw = wire(url);
  const zeros = `00-${"0".repeat(32)}-${spanId}-01`;
  for (const meta of [{ traceparent: 1 }, { traceparent: "x" }, { traceparent: zeros }, { tracestate: "a=1" }])
    await raw.start("greet", {}, { meta });
  await raw.start("greet", {}, { meta: { traceparent, tracestate: "a".repeat(513) } });
  channels.created.unsubscribe(listener);
  expect(created).toEqual([null, null, null, null, { traceparent }]);
});

test("metrics count tasks, starts, runs, polls and what is refused", async () => {
  const { points, tracerProvider, meterProvider } = collecting();
  await using store = sqlite(":memory:");
  using _watching = instrument({ tracerProvider, meterProvider, store });
  await using tasks = createTasks({ store, tools: [greet] });
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" })).listen();
  await tasks.work();
  const raw = wire(url);
  const taskId = await raw.start("greet");
  await raw.until(taskId, "input_required");
  expect(await points()).toMatchObject({
    "mcp_tasks.created greet": 1,
    "mcp_tasks.start.duration greet": 1,
    "messaging.process.duration mcp_tasks process greet parked": 1,
    "mcp_tasks.live greet input_required": 1,
  });
  await raw.get("unknown");
  await raw.cancel(taskId);
  const counted = await points();
  expect(counted).toMatchObject({
    "mcp.server.operation.duration tasks/cancel": 1,
    "mcp.server.operation.duration tasks/get TASK_NOT_FOUND": 1,
  });
  expect(counted["mcp.server.operation.duration tasks/get"]).toBeGreaterThan(0);
  expect(counted["mcp_tasks.live greet input_required"]).toBe(0);
});

test("a write that came too late is told, and one queue's depth and age", async () => {
  const { points, tracerProvider, meterProvider } = collecting();
  const clock = manualClock();
  await using store = sqlite(":memory:", { clock });
  using _watching = instrument({ tracerProvider, meterProvider, store });
  await using engine = createEngine({ store, clock });
  await create(store);
  const claimed = await claimOne(store);
  await store.finish(claimed, { status: "completed", result: "{}" });
  expect(await engine.attempts.finish(claimed, { status: "completed", result: "{}" })).toBe(false);
  await store.create(newTask({ queue: "slow" }), null);
  clock.advance(5_000);
  await store.create(newTask({ queue: "slow" }), null);
  expect(await points()).toMatchObject({
    "mcp_tasks.refused_writes finish": 1,
    "mcp_tasks.queue.depth slow": 2,
    "mcp_tasks.queue.age slow": 5,
    "mcp_tasks.live build working": 2,
  });
});

test("nothing is heard any more once the instrument is disposed", async () => {
  const { spans, tracerProvider, meterProvider } = collecting();
  instrument({ tracerProvider, meterProvider })[Symbol.dispose]();
  expect(Object.values(channels).filter(({ hasSubscribers }) => hasSubscribers)).toEqual([]);
  await using store = sqlite(":memory:");
  await using engine = createEngine({ store });
  const { id: _id, ...task } = newTask();
  await engine.create(task);
  expect(spans.getFinishedSpans()).toEqual([]);
});
