import { spawn } from "node:child_process";
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { taskTool } from "../../src/tool.ts";
import { everything, type Fields, type Wire } from "../wire/client.ts";
import { stdioWire } from "../wire/stdio.ts";
import { bench, text, type Bench } from "./bench.ts";
import { careful, careless } from "./careless.ts";
import { folder, nodeArgs } from "./setup.ts";
import { askOne, broken, long, quick, said, seen, take } from "./tools.ts";

/* Faults of other implementations in how a task ends and what it shows, the second half of their server's protocol. */

let shared: Bench;
let client: Wire;
beforeAll(async () => {
  shared = await bench([askOne, quick, long, broken]);
  client = shared.wire();
});
afterAll(() => shared[Symbol.asyncDispose]());

const circle: { cause?: unknown } = new Error("round and round");
circle.cause = circle;
const thrown: Record<string, unknown> = {
  "an error": new Error("plain"),
  "a string": "words",
  undefined,
  "an error that is its own cause": circle,
  "an error whose message throws": Object.defineProperty(new Error("x"), "message", {
    get() {
      throw new Error("no");
    },
  }),
};
const thrower = taskTool({
  name: "thrower",
  inputSchema: z.object({ kind: z.string() }),
  run({ kind }) {
    throw thrown[kind];
  },
});

test.each(Object.keys(thrown))(
  "BL-17: a handler that throws %s ends its task as a tool error, and the next one runs",
  async (kind) => {
    await using own = await bench([thrower, quick]);
    const wire = own.wire();
    const ended = await wire.until(await wire.start("thrower", { kind }));
    expect([ended.status, ended.result?.isError]).toEqual(["completed", true]);
    expect(said(ended.result)).toMatch(/./);
    expect((await wire.until(await wire.start("quick", { label: "next" }))).status).toBe("completed");
  },
);

test("BL-17: a protocol error that a handler throws fails its task with code, message and data", async () => {
  const ended = await client.until(await client.start("broken"));
  expect(ended).toMatchObject({ status: "failed", statusMessage: "no such shop" });
  expect(ended.error).toEqual({ code: -32050, message: "no such shop", data: { shop: 3 } });
});

test("BL-17: a step that fails after its handler returned changes nothing and ends no process", async () => {
  const gate = Promise.withResolvers<void>();
  const hasty = taskTool({
    name: "hasty",
    run(_args, task) {
      void task.step("late", async () => {
        await gate.promise;
        throw new Error("too late");
      });
      return text("done");
    },
  });
  // A promise that nobody handles would fail this run of tests.
  await using own = await bench([hasty, quick]);
  const wire = own.wire();
  const ended = await wire.until(await wire.start("hasty"));
  gate.resolve();
  expect(said(ended.result)).toBe("done");
  expect((await wire.until(await wire.start("quick", { label: "next" }))).status).toBe("completed");
});

test("BL-17: a handler that ends its process by a promise nobody handles leaves no task working, and the next one runs", async () => {
  using files = folder();
  const file = files.file("tasks.db");
  await using front = await bench([careless, careful], { file, work: false });
  const wire = front.wire({ patience: 20_000 });
  const id = await wire.start("careless");
  let deaths = 0;
  const ended = wire.until(id);
  const worker = async () => {
    const child = spawn(process.execPath, nodeArgs("cases/careless.ts", [file]), {
      stdio: ["pipe", "ignore", "ignore"],
    });
    const gone = once(child, "exit").then(() => (deaths += 1));
    await Promise.race([gone, ended]);
    return child;
  };
  let child = await worker();
  while (child.exitCode !== null && deaths < 5) child = await worker();
  const task = await ended;
  expect(task.status).toBe("failed");
  expect(task.error?.code).toBe(-32603);
  expect(task.error?.message).toMatch(/3 times/);
  expect((await wire.until(await wire.start("careful"))).status).toBe("completed");
  child.kill("SIGKILL");
});

test("BL-18: a tool's own error is a completed task with the whole result in it", async () => {
  const whole = {
    content: [{ type: "text" as const, text: "out of stock" }],
    structuredContent: { left: 0 },
    isError: true,
  };
  const failing = taskTool({ name: "failing", outputSchema: z.object({ left: z.number() }), run: () => whole });
  await using own = await bench([failing]);
  const wire = own.wire();
  const ended = await wire.until(await wire.start("failing"));
  expect(ended.status).toBe("completed");
  expect(ended.result).toEqual({ ...whole, resultType: "complete" });
});

test("BL-19: twenty reads of a finished task on two connections are all the same", async () => {
  const id = await client.start("quick", { label: "bl19" });
  await client.until(id);
  const wires = [shared.wire(), shared.wire()];
  const read = async (index: number) => (await wires[index % 2]?.get(id, { id: 1 }))?.body;
  const bodies = await Promise.all(Array.from({ length: 20 }, (_, index) => read(index)));
  expect(new Set(bodies.map((body) => JSON.stringify(body))).size).toBe(1);
  expect(await read(0)).toEqual(bodies[0]);
});

test("BL-21, BL-23: in each state a read is complete, with whole milliseconds and instants that don't go back", async () => {
  const states: Fields[] = [];
  const add = async (id: string, ...status: string[]) => {
    const task = await client.until(id, ...status);
    states.push(task);
    return task;
  };
  const walk = await client.start("ask_one", { label: "bl23" });
  const first = await add(walk, "input_required");
  await client.update(walk, { name: take("x") });
  const last = await add(walk, "completed");
  expect(Date.parse(last.lastUpdatedAt ?? "")).toBeGreaterThanOrEqual(Date.parse(first.lastUpdatedAt ?? ""));
  expect(last.createdAt).toBe(first.createdAt);
  const waiting = await client.start("long", { label: "bl23" });
  await add(waiting, "working");
  await client.cancel(waiting);
  await add(waiting, "cancelled");
  await add(await client.start("broken"), "failed");
  for (const task of states) {
    expect(task.resultType).toBe("complete");
    expect(task.ttlMs === null || Number.isInteger(task.ttlMs)).toBe(true);
    expect(Number.isInteger(task.pollIntervalMs)).toBe(true);
    expect(task.createdAt).toBe(new Date(task.createdAt ?? "").toISOString());
  }
  expect(last.ttlMs).toBeGreaterThanOrEqual(7 * 24 * 3_600_000);
});

describe("BL-26", () => {
  const strict = taskTool({
    name: "strict",
    inputSchema: z.object({ n: z.coerce.number().default(5), good: z.boolean() }),
    outputSchema: z.object({ n: z.number() }),
    run({ n, good }) {
      seen.push(`strict ${n}`);
      return { content: [{ type: "text", text: `n=${n}` }], structuredContent: good ? { n } : { n: "many" } };
    },
  });
  const free = taskTool({ name: "free", run: (args) => text(JSON.stringify(args)) });
  let own: Bench;
  beforeAll(async () => void (own = await bench([strict, free])));
  afterAll(() => own[Symbol.asyncDispose]());

  /** What a call gives in line, and what as a task. */
  async function both(tool: string, args: Record<string, unknown>): Promise<[Fields | undefined, Fields | undefined]> {
    const wire = own.wire();
    const { elicitation, sampling, roots } = everything;
    const inline = (await wire.call(tool, args, { capabilities: { elicitation, sampling, roots } })).body.result;
    const task = await wire.until(await wire.start(tool, args));
    const { _meta, ...result } = inline ?? {};
    return [result, task.result];
  }

  test("BL-26: arguments are coerced and defaulted alike with and without a task", async () => {
    const [inline, task] = await both("strict", { n: "7", good: true });
    expect(inline).toEqual(task);
    expect(task?.structuredContent).toEqual({ n: 7 });
    const [, defaulted] = await both("strict", { good: true });
    expect(defaulted?.structuredContent).toEqual({ n: 5 });
  });

  test("BL-26: a result that breaks its schema is the same tool error with and without a task", async () => {
    const [inline, task] = await both("strict", { n: 1, good: false });
    expect(task?.isError).toBe(true);
    expect(inline).toEqual(task);
  });

  test("BL-26: a tool without a schema gets no arguments either way", async () => {
    const [inline, task] = await both("free", {});
    expect(inline).toEqual(task);
  });

  test("BL-26: an output schema that checks asynchronously checks a task's result, too", async () => {
    const patient = taskTool({
      name: "patient",
      inputSchema: z.object({ n: z.number() }),
      outputSchema: z.object({ n: z.number().refine(async (n) => n > 0, "must be positive") }),
      run: ({ n }) => ({ content: [], structuredContent: { n } }),
    });
    await using other = await bench([patient]);
    const wire = other.wire();
    const good = await wire.until(await wire.start("patient", { n: 1 }));
    expect(good.result?.structuredContent).toEqual({ n: 1 });
    const bad = await wire.until(await wire.start("patient", { n: -1 }));
    expect([bad.status, bad.result?.isError]).toEqual(["completed", true]);
    expect(said(bad.result)).toContain("must be positive");
  });

  test("BL-26: bad arguments are refused before a task is made", async () => {
    const had = (await own.store.list({ limit: 1_000 })).length;
    const wire = own.wire();
    const asTask = await wire.call("strict", { n: "seven", good: "yes" });
    const inline = await wire.call("strict", { n: "seven", good: "yes" }, { capabilities: {} });
    expect(asTask.body.result?.resultType).not.toBe("task");
    expect(asTask.body.error ?? asTask.body.result?.isError).toBeTruthy();
    expect([asTask.body.error, asTask.body.result]).toEqual([inline.body.error, inline.body.result]);
    expect(await own.store.list({ limit: 1_000 })).toHaveLength(had);
  });
});

test.each(["HTTP", "stdio"])(
  "BL-27: over %s a task sends no progress; what it reports is its status message",
  async (transport) => {
    using files = folder();
    const stdio =
      transport === "stdio"
        ? stdioWire(nodeArgs("fixture/main.ts", ["--stdio", "--db", files.file("tasks.db")]))
        : null;
    const wire = stdio ?? client;
    const tool = stdio === null ? "long" : "slow_compute";
    const call = await wire.call(tool, { seconds: 0.5, label: "bl27" }, { meta: { progressToken: "p" } });
    expect(call.before).toEqual([]);
    const id = call.body.result?.taskId ?? "";
    const stream = await wire.listen([id]);
    if (stdio === null) {
      expect((await wire.untilTask(id, (task) => task.statusMessage !== undefined)).statusMessage).toBe("under way");
      await shared.tasks.send(id, "go", 1);
      expect((await wire.untilTask(id, (task) => task.statusMessage !== "under way")).statusMessage).toBe(
        "nearly there",
      );
      await shared.tasks.send(id, "end", 1);
    }
    await stream.find(({ params }) => params?.status === "completed");
    await stream.find(({ result }) => result !== undefined);
    const methods = stream.seen.flatMap(({ method }) => method ?? []);
    expect(new Set(methods)).toEqual(new Set(["notifications/subscriptions/acknowledged", "notifications/tasks"]));
    if (stdio !== null) {
      expect(stdio.lines.join("\n")).not.toMatch(/notifications\/(progress|message)/);
      await stdio.close();
    }
  },
);
