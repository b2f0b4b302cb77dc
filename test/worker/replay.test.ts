import type { CallToolResult } from "@modelcontextprotocol/server";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { ProtocolError } from "@modelcontextprotocol/server";
import { TaskError } from "../../src/errors.ts";
import { noCapabilities } from "../../src/protocol/capabilities.ts";
import { manualClock } from "../../src/store/contract/manual-clock.ts";
import { taskTool, type TaskContext } from "../../src/tool.ts";
import { everything, signals, text, workbench } from "./workbench.ts";

describe("steps", () => {
  test("a step runs once although the handler runs again after each wait", async () => {
    const ran: string[] = [];
    const tool = taskTool({
      name: "order",
      async run(_args, task) {
        ran.push("top");
        const a = await task.step("pick", () => (ran.push("pick"), "shoes"));
        const { size } = await task.elicit("size", { message: "Size?", schema: z.object({ size: z.number() }) });
        await task.step("pack", () => void ran.push("pack"));
        await task.approve("ship", "Ship it?");
        return text(`${a} ${size}`);
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    const asked = await bench.settled(id);
    expect(asked).toMatchObject({
      status: "input_required",
      inputRequests: { size: { method: "elicitation/create" } },
    });
    await bench.engine.answer(id, "", { size: { action: "accept", content: { size: 42 } } });
    await bench.until(id, (task) => "ship" in task.inputRequests);
    await bench.engine.answer(id, "", { ship: { action: "accept", content: {} } });
    const done = await bench.until(id, (task) => task.status === "completed");
    expect(done).toMatchObject({ result: text("shoes 42") });
    expect(ran).toEqual(["top", "pick", "top", "pack", "top"]);
  });

  test("a failed step throws alike at every replay", async () => {
    const seen: string[] = [];
    const tool = taskTool({
      name: "fragile",
      async run(_args, task) {
        try {
          await task.step("boom", () => {
            throw new RangeError("too far");
          });
        } catch (error) {
          seen.push(`${(error as Error).name}: ${(error as Error).message}`);
        }
        await task.approve("go", "Go on?");
        return text("ok");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    await bench.settled(id);
    await bench.engine.answer(id, "", { go: { action: "accept" } });
    await bench.until(id, (task) => task.status === "completed");
    expect(seen).toEqual(["RangeError: too far", "RangeError: too far"]);
  });

  test("a step is tried again as often as it says, then its error counts", async () => {
    let tries = 0;
    const tool = taskTool({
      name: "retrying",
      run: async (_args, task) =>
        text(
          await task.step(
            "flaky",
            () => {
              if (++tries < 3) throw new Error("not yet");
              return tries;
            },
            { retry: { attempts: 3, backoff: 1 } },
          ),
        ),
    });
    await using bench = workbench([tool]);
    bench.worker();
    expect(await bench.settled(await bench.start(tool))).toMatchObject({ status: "completed", result: text(3) });
  });

  test("a step that takes too long is told by its signal and throws", async () => {
    let reason: unknown;
    const tool = taskTool({
      name: "slow",
      run: async (_args, task) =>
        task.step(
          "wait",
          ({ signal }) =>
            new Promise<never>((_resolve, reject) =>
              signal.addEventListener("abort", () => {
                reason = signal.reason;
                reject(signal.reason as Error);
              }),
            ),
          { timeout: 5 },
        ),
    });
    await using bench = workbench([tool]);
    bench.worker();
    const task = await bench.settled(await bench.start(tool));
    expect(task).toMatchObject({ status: "completed", result: { isError: true } });
    expect(reason).toMatchObject({ code: "STEP_TIMED_OUT" });
  });

  test.each([
    ["undefined", undefined, undefined],
    ["null", null, null],
    ["a date, as JSON has it", new Date(0), "1970-01-01T00:00:00.000Z"],
    ["an own __proto__ key", JSON.parse('{"__proto__":1}'), JSON.parse('{"__proto__":1}')],
  ])("a step gives the same for %s when it ran and when it is repeated", async (_name, value, expected) => {
    const seen: unknown[] = [];
    const tool = taskTool({
      name: "values",
      async run(_args, task) {
        seen.push(await task.step("value", () => value));
        await task.approve("go", "Go on?");
        return text("ok");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    await bench.settled(id);
    await bench.engine.answer(id, "", { go: { action: "accept", content: {} } });
    await bench.until(id, (task) => task.status === "completed");
    expect(seen).toEqual([expected, expected]);
  });

  test("a value that JSON can't hold and one that is too large end in a clear tool error", async () => {
    const tool = taskTool({
      name: "unfit",
      inputSchema: z.object({ big: z.boolean() }),
      run: async ({ big }, task) => text(await task.step("s", () => (big ? "x".repeat(100) : 1n))),
    });
    await using bench = workbench([tool]);
    bench.worker({ limits: { maxResultBytes: 1_000, maxStepBytes: 50, blobs: null } });
    const bigint = await bench.settled(await bench.start(tool, { big: false }));
    const huge = await bench.settled(await bench.start(tool, { big: true }));
    expect(bigint).toMatchObject({ result: { isError: true, content: [{ text: expect.stringContaining("JSON") }] } });
    expect(huge).toMatchObject({ result: { isError: true, content: [{ text: expect.stringContaining("50 bytes") }] } });
  });

  test("the same name in sequence gets keys of its own; side by side it is refused", async () => {
    const keys: string[] = [];
    const tool = taskTool({
      name: "names",
      inputSchema: z.object({ aside: z.boolean() }),
      async run({ aside }, task) {
        const one = () => task.step("same", ({ key }) => void keys.push(key.split(":")[1] ?? ""));
        if (aside) await Promise.all([one(), one()]);
        else for (let i = 0; i < 3; i++) await one();
        return text("ok");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    await bench.settled(await bench.start(tool, { aside: false }));
    expect(keys).toEqual(["same", "same#2", "same#3"]);
    const refused = await bench.settled(await bench.start(tool, { aside: true }));
    expect(refused).toMatchObject({
      result: { isError: true, content: [{ text: expect.stringContaining("differ") }] },
    });
  });
});

describe("waits", () => {
  test.each<[string, (task: TaskContext) => Promise<unknown>]>([
    ["an answer", (task) => task.elicit("q", { message: "?", schema: z.object({}) })],
    ["an event", (task) => task.event("e")],
    ["a time", (task) => task.sleep("s", 1)],
  ])("a step that waits for %s is told that it can't, and its task doesn't hang", async (_name, wait) => {
    const tool = taskTool({
      name: "waits",
      async run(_args, task) {
        const refused = await task.step("outer", () => wait(task)).catch((error: TaskError) => error.code);
        // What the step set off is not the step.
        await task.sleep("nap", 1);
        return text(refused);
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    expect(await bench.settled(id)).toMatchObject({ status: "completed", result: text("MISUSE") });
  });

  test("a task that another one's step wakes may wait", async () => {
    let id = "";
    const woken = taskTool({ name: "woken", run: async (_args, task) => text(await task.event("go")) });
    const wakes = taskTool({
      name: "wakes",
      async run(_args, task) {
        await task.step("start", async () => {
          // By now the worker looks for nothing by itself.
          await pause(20);
          id = await bench.start(woken);
        });
        return text("started");
      },
    });
    await using bench = workbench([woken, wakes]);
    bench.worker();
    await bench.settled(await bench.start(wakes));
    await bench.engine.send(id, "go", "gone");
    expect(await bench.settled(id)).toMatchObject({ status: "completed", result: text("gone") });
  });

  test("questions under Promise.all are asked together; each answer counts, the last one goes on", async () => {
    const tool = taskTool({
      name: "both",
      async run(_args, task) {
        const schema = z.object({ v: z.string() });
        const [a, b] = await Promise.all([
          task.elicit("a", { message: "A?", schema }),
          task.elicit("b", { message: "B?", schema }),
        ]);
        return text(a.v + b.v);
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    const asked = await bench.settled(id);
    expect(asked).toMatchObject({ inputRequests: { a: {}, b: {} } });
    await bench.engine.answer(id, "", { b: { action: "accept", content: { v: "2" } } });
    const still = await bench.settled(id);
    expect(Object.keys((still as { inputRequests: object }).inputRequests)).toEqual(["a"]);
    await bench.engine.answer(id, "", { a: { action: "accept", content: { v: "1" } } });
    expect(await bench.until(id, (task) => task.status === "completed")).toMatchObject({ result: text("12") });
  });

  test("a bad answer leaves its request open and says why; the good one beside it counts", async () => {
    const tool = taskTool({
      name: "picky",
      async run(_args, task) {
        const [n, s] = await Promise.all([
          task.elicit("n", { message: "N?", schema: z.object({ n: z.int().min(1) }) }),
          task.elicit("s", { message: "S?", schema: z.object({ s: z.string() }) }),
        ]);
        return text(`${n.n}${s.s}`);
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    await bench.settled(id);
    await bench.engine.answer(id, "", {
      n: { action: "accept", content: { n: 0 } },
      s: { action: "accept", content: { s: "x" } },
    });
    const task = await bench.settled(id);
    expect(task).toMatchObject({ status: "input_required", inputRequests: { n: {} } });
    expect(task.statusMessage).toMatch(/"n".*content\.n/);
    await bench.engine.answer(id, "", { n: { action: "accept", content: { n: 7 } } });
    expect(await bench.until(id, (t) => t.status === "completed")).toMatchObject({ result: text("7x") });
  });

  test("an answer that only the schema's own rules refuse is asked for again under a new key", async () => {
    const even = z.object({ n: z.number().refine((n) => n % 2 === 0, "must be even") });
    const tool = taskTool({
      name: "even",
      run: async (_args, task) => text((await task.elicit("n", { message: "N?", schema: even })).n),
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    await bench.settled(id);
    await bench.engine.answer(id, "", { n: { action: "accept", content: { n: 3 } } });
    const again = await bench.until(id, (task) => "n#2" in task.inputRequests);
    expect(again).toMatchObject({ inputRequests: { "n#2": { params: { message: "N? (must be even)" } } } });
    await bench.engine.answer(id, "", { "n#2": { action: "accept", content: { n: 4 } } });
    expect(await bench.until(id, (t) => t.status === "completed")).toMatchObject({ result: text(4) });
  });

  test.each([
    ["decline", "DECLINED"],
    ["cancel", "INPUT_CANCELLED"],
  ])("elicit and approve throw when the person answers %s", async (action, code) => {
    const thrown: unknown[] = [];
    const keep = (error: unknown) => thrown.push(error);
    const tool = taskTool({
      name: "ask",
      async run(_args, task) {
        const asked = [task.elicit("q", { message: "?", schema: z.object({}) }), task.approve("go", "Go?")];
        await Promise.all(asked.map((each) => each.catch(keep)));
        return text("went on");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    await bench.settled(id);
    await bench.engine.answer(id, "", { q: { action }, go: { action } });
    await bench.until(id, (task) => task.status === "completed");
    expect(thrown).toMatchObject([{ code }, { code }]);
  });

  test("input that only the caller may give, and can't, ends the task failed with -32021", async () => {
    const tool = taskTool({
      name: "roots",
      task: { input: "caller" },
      run: async (_args, task) => text((await task.roots("r")).length),
    });
    await using bench = workbench([tool]);
    bench.worker();
    const client = {
      tasks: true,
      elicitation: { form: true, url: false },
      sampling: { basic: false, tools: false },
      roots: false,
    };
    expect(await bench.settled(await bench.start(tool, {}, client))).toMatchObject({
      status: "failed",
      error: { code: -32021, data: { requiredCapabilities: { roots: {} } } },
    });
  });

  test("input that the caller can't give is asked for all the same, and anybody who may answer the task can", async () => {
    const tool = taskTool({ name: "roots", run: async (_args, task) => text((await task.roots("r")).length) });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool, {}, noCapabilities);
    expect(await bench.settled(id)).toMatchObject({ inputRequests: { r: { method: "roots/list" } } });
    await bench.engine.answer(id, "", { r: { roots: [{ uri: "file:///a" }] } });
    expect(await bench.until(id, (task) => task.status === "completed")).toMatchObject({ result: text(1) });
  });

  test("an event wakes the task, whether it is sent before or after it is awaited", async () => {
    const tool = taskTool({
      name: "webhook",
      async run(_args, task) {
        const first = await task.event<string>("first");
        const second = await task.event<string>("second");
        return text(first + second);
      },
    });
    await using bench = workbench([tool]);
    const id = await bench.start(tool);
    expect(await bench.engine.send(id, "second", "B")).toBe(true);
    bench.worker();
    expect(await bench.engine.send(id, "first", "A")).toBe(true);
    expect(await bench.engine.send(id, "first", "ignored")).toBe(true);
    expect(await bench.until(id, (task) => task.status === "completed")).toMatchObject({ result: text("AB") });
    expect(await bench.engine.send(id, "third", "C")).toBe(false);
  });

  test("poll looks until there is a value, and a sleep ends by itself", async () => {
    let looks = 0;
    const tool = taskTool({
      name: "external",
      async run(_args, task) {
        await task.sleep("nap", 10);
        return text(await task.poll("job", { every: 5 }, () => (++looks === 3 ? "done" : undefined)));
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    expect(await bench.settled(await bench.start(tool))).toMatchObject({ status: "completed", result: text("done") });
    expect(looks).toBe(3);
  });
});

describe("ends", () => {
  const ends: [name: string, body: () => unknown, task: object][] = [
    [
      "an Error",
      () => {
        throw new Error("broken");
      },
      { status: "completed", result: { isError: true, content: [{ type: "text", text: "broken" }] } },
    ],
    [
      "a string",
      () => {
        throw "plain";
      },
      { status: "completed", result: { isError: true, content: [{ text: "plain" }] } },
    ],
    [
      "null",
      () => {
        throw null;
      },
      { status: "completed", result: { isError: true } },
    ],
    [
      "a ProtocolError",
      () => {
        throw new ProtocolError(-32042, "no");
      },
      { status: "failed", error: { code: -32042, message: "no" }, statusMessage: "no" },
    ],
    [
      "a ProtocolError with no code that JSON-RPC has",
      () => {
        throw new ProtocolError("broken" as never, "no");
      },
      { status: "failed", error: { code: -32603, message: "no" } },
    ],
    ["nothing", () => undefined, { status: "failed", error: { code: -32603 } }],
    [
      "a bigint in its result",
      () => ({ content: [], structuredContent: { n: 1n } }),
      { status: "failed", error: { message: expect.stringContaining("JSON") } },
    ],
    [
      "NaN in its result",
      () => ({ content: [], structuredContent: { n: NaN } }),
      { status: "completed", result: { structuredContent: { n: null } } },
    ],
    [
      "a list and no words",
      () => ({ content: [{ type: "image", data: "AA==", mimeType: "image/png" }], structuredContent: ["a"] }),
      { status: "completed", result: { content: [{ type: "image" }, { type: "text", text: '["a"]' }] } },
    ],
    [
      "a list and words of its own",
      () => ({ content: [{ type: "text", text: "one thing" }], structuredContent: ["a"] }),
      { status: "completed", result: { content: [{ type: "text", text: "one thing" }] } },
    ],
    [
      "an object and, on purpose, no words",
      () => ({ content: [], structuredContent: { a: 1 } }),
      { status: "completed", result: { content: [] } },
    ],
  ];

  test.each(ends)("a handler that gives %s ends its task", async (_name, body, expected) => {
    const tool = taskTool({ name: "end", run: body as never });
    await using bench = workbench([tool]);
    bench.worker();
    expect(await bench.settled(await bench.start(tool))).toMatchObject(expected);
  });

  test("a result that breaks the output schema is a tool error", async () => {
    const tool = taskTool({
      name: "strict",
      outputSchema: z.object({ n: z.number() }),
      run: () => ({ content: [], structuredContent: { n: "one" } }),
    });
    await using bench = workbench([tool]);
    bench.worker();
    expect(await bench.settled(await bench.start(tool))).toMatchObject({
      result: { isError: true, content: [{ text: expect.stringContaining("Output validation error") }] },
    });
  });

  test("a tool that may be retried runs again after it threw, its failed steps too", async () => {
    let tries = 0;
    const tool = taskTool({
      name: "again",
      task: { retry: { attempts: 3, backoff: 1 } },
      run: async (_args, task): Promise<CallToolResult> =>
        text(
          await task.step("s", (): number => {
            if (++tries < 3) throw new Error("down");
            return tries;
          }),
        ),
    });
    await using bench = workbench([tool]);
    bench.worker();
    expect(await bench.settled(await bench.start(tool))).toMatchObject({ result: text(3) });
  });

  test("a no of a person is not asked for again by a tool's retry, and a long retry isn't given up as poison", async () => {
    let tries = 0;
    const tool = taskTool({
      name: "stubborn",
      inputSchema: z.object({ ask: z.boolean() }),
      task: { retry: { attempts: 5, backoff: 1 } },
      async run({ ask }, task) {
        tries++;
        if (ask) await task.approve("go", "Go?");
        if (tries < 5) throw new Error("down");
        return text(tries);
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    expect(await bench.settled(await bench.start(tool, { ask: false }))).toMatchObject({ result: text(5) });
    const id = await bench.start(tool, { ask: true });
    await bench.settled(id);
    await bench.engine.answer(id, "", { go: { action: "decline" } });
    const declined = await bench.until(id, (task) => task.status === "completed");
    expect(declined).toMatchObject({ result: { isError: true, content: [{ text: "The person asked said no." }] } });
    expect(tries).toBe(7);
  });

  test("a cancelled handler that stops is cancelled; one that finishes anyway is completed", async () => {
    const running = signals();
    const tool = taskTool({
      name: "stoppable",
      inputSchema: z.object({ stubborn: z.boolean() }),
      async run({ stubborn }, task) {
        running.next();
        await new Promise((resolve) => task.signal.addEventListener("abort", resolve));
        if (!stubborn) throw task.signal.reason;
        return text("finished");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    for (const [stubborn, status] of [
      [false, "cancelled"],
      [true, "completed"],
    ] as const) {
      const id = await bench.start(tool, { stubborn });
      await running.reached();
      await bench.engine.cancel(id, "");
      expect(await bench.settled(id)).toMatchObject({ status });
    }
  });

  test("a tool that must not run twice holds its waits and goes on in the same attempt", async () => {
    let runs = 0;
    const tool = taskTool({
      name: "careful",
      task: { recovery: "fail" },
      async run(_args, task) {
        runs++;
        const answer = await task.elicit("q", { message: "?", schema: z.object({ v: z.string() }) });
        await task.sleep("nap", 1);
        const event = await task.event<string>("e");
        return text(answer.v + event);
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    await bench.settled(id);
    await bench.engine.answer(id, "", { q: { action: "accept", content: { v: "a" } } });
    await bench.engine.send(id, "e", "b");
    expect(await bench.until(id, (t) => t.status === "completed")).toMatchObject({ result: text("ab") });
    expect(runs).toBe(1);
  });

  test("a once step that threw is not run again by its tool's retry", async () => {
    let ran = 0;
    let tries = 0;
    const tool = taskTool({
      name: "once-failing",
      task: { retry: { attempts: 3, backoff: 1 } },
      async run(_args, task): Promise<CallToolResult> {
        tries++;
        const fail = (): never => {
          ran++;
          throw new RangeError("refused");
        };
        await task.step("pay", fail, { once: true });
        return text("paid");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const task = await bench.settled(await bench.start(tool));
    expect(task).toMatchObject({ result: { isError: true, content: [{ text: "refused" }] } });
    expect({ ran, tries }).toEqual({ ran: 1, tries: 3 });
  });

  test("a step that nobody awaits and that throws is no unhandled rejection", async () => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => void unhandled.push(reason);
    process.on("unhandledRejection", note);
    const tool = taskTool({
      name: "forgetful",
      async run(_args, task) {
        void task.step("lost", () => Promise.reject(new Error("nobody hears")));
        void task.elicit("side", { message: "?", schema: z.object({ a: z.string() }) }).catch;
        await task.step("work", () => 1);
        return text("done");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const client = { ...everything, elicitation: { form: false, url: false } };
    expect(await bench.settled(await bench.start(tool, {}, client))).toMatchObject({ result: text("done") });
    await new Promise((resolve) => setImmediate(resolve));
    process.off("unhandledRejection", note);
    expect(unhandled).toEqual([]);
  });

  test("with onCancel unwind, a handler that waits is resumed to clean up, and then cancelled", async () => {
    const cleaned: string[] = [];
    const tool = taskTool({
      name: "wrapper",
      inputSchema: z.object({ wait: z.enum(["approve", "sleep", "event", "poll"]) }),
      task: { onCancel: "unwind" },
      async run({ wait }, task) {
        const job = await task.step("start", () => `job of ${wait}`);
        await task.sleep("short", 1);
        try {
          if (wait === "approve") await task.approve("go", "Go on?");
          if (wait === "sleep") await task.sleep("nap", "1h");
          if (wait === "event") await task.event("done");
          if (wait === "poll") await task.poll("done", { every: "1h" }, () => undefined);
        } finally {
          if (task.signal.aborted) cleaned.push(job);
        }
        return text("never");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    for (const wait of ["approve", "sleep", "event", "poll"]) {
      const id = await bench.start(tool, { wait });
      await bench.until(id, (task) => task.epoch === 2 && task.activation !== "leased");
      await bench.engine.cancel(id, "");
      await bench.until(id, (task) => task.status === "cancelled");
    }
    expect(cleaned).toEqual(["job of approve", "job of sleep", "job of event", "job of poll"]);
  });

  test("with onCancel unwind, what must not run twice is not resumed when its worker is gone", async () => {
    const clock = manualClock();
    const tool = taskTool({
      name: "careful",
      task: { recovery: "fail", onCancel: "unwind" },
      run: () => text("again"),
    });
    await using bench = workbench([tool], { clock });
    const id = await bench.start(tool);
    const request = {
      ...{ worker: "gone", tools: [{ name: "careful", version: "", limit: null }], queues: ["default"] },
      ...{ ownerLimit: null, count: 1, leaseMs: 1_000 },
    };
    const [claim] = await bench.store.claim(request);
    await bench.engine.cancel(id, "");
    expect(await bench.store.park(claim!, { inputs: [], events: [{ key: "e" }], timers: [] }, true)).toBe(true);
    clock.advance(1_000);
    expect(await bench.store.claim({ ...request, worker: "next" })).toEqual([]);
    expect(await bench.settled(id)).toMatchObject({ status: "cancelled" });
  });

  test("a worker that closes hands back what runs, without spending an attempt", async () => {
    let runs = 0;
    const running = signals();
    const tool = taskTool({
      name: "long",
      task: { attempts: 1 },
      async run(_args, task) {
        running.next();
        if (++runs === 3) return text(task.attempt);
        await new Promise((_resolve, reject) =>
          task.signal.addEventListener("abort", () => reject(task.signal.reason as Error)),
        );
        return text("never");
      },
    });
    await using bench = workbench([tool]);
    const id = await bench.start(tool);
    for (let restart = 0; restart < 2; restart++) {
      const worker = bench.worker();
      await running.reached();
      await worker.close();
    }
    bench.worker();
    expect(await bench.settled(id)).toMatchObject({ status: "completed", result: text(1) });
    expect(bench.errors).toEqual([]);
  });

  test("a tool that must not run twice is not handed back when its handler outlasts the worker", async () => {
    let runs = 0;
    const running = signals();
    const over = signals();
    const tool = taskTool({
      name: "deaf",
      task: { recovery: "fail" },
      async run() {
        runs++;
        running.next();
        await over.reached();
        return text("too late");
      },
    });
    await using bench = workbench([tool]);
    const id = await bench.start(tool);
    const worker = bench.worker();
    await running.reached();
    await worker.close();
    bench.worker();
    expect(await bench.settled(id)).toMatchObject({ status: "failed", error: new TaskError("INTERRUPTED").toRpc() });
    over.next();
    expect(runs).toBe(1);
  });

  test("the errors of the table reach a handler as TaskError", () => {
    expect(new TaskError("DECLINED").toRpc()).toEqual({ code: -32603, message: "The person asked said no." });
  });
});
