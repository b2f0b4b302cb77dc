import { ProtocolError } from "@modelcontextprotocol/server";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Clock } from "../../src/clock.ts";
import { createEngine, type Engine } from "../../src/engine/engine.ts";
import { TaskError } from "../../src/errors.ts";
import { noCapabilities } from "../../src/protocol/capabilities.ts";
import { manualClock, type ManualClock } from "../../src/store/contract/manual-clock.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { Claim, TaskStore } from "../../src/store/store.ts";
import { newTaskOf, taskTool, type TaskContext, type TaskTool } from "../../src/tool.ts";
import { startAttempt } from "../../src/worker/attempt.ts";
import { startWorker } from "../../src/worker/worker.ts";
import { everything, signals, text, workbench } from "./workbench.ts";

const limits = { maxResultBytes: 10_000, maxStepBytes: 10_000, blobs: null };
const form = { message: "Go?", schema: z.object({}) };

/** A clock that knows how many of its timers are still to ring. */
function countingClock(): ManualClock & { open(): number } {
  const clock = manualClock();
  const open = new Set<object>();
  return {
    ...clock,
    after(ms, fn) {
      const timer = {};
      open.add(timer);
      const cancel = clock.after(ms, () => {
        open.delete(timer);
        fn();
      });
      return () => {
        open.delete(timer);
        cancel();
      };
    },
    open: () => open.size,
  };
}

/** A claimed task, and a way to run an attempt of it on verbs of the test's choice. */
async function claimed(tool: TaskTool, clock: Clock, client = everything) {
  const store = sqlite(":memory:", { clock });
  const engine = createEngine({ store, clock });
  const made = { client, owner: "", args: "{}", answers: "{}", auth: "null" };
  const { id } = await engine.create({ ...newTaskOf(tool), ...made });
  const errors: TaskError[] = [];
  const claim = async () => {
    const tools = [{ name: tool.name, version: tool.version, limit: null }];
    const found = await store.claim({
      worker: "w",
      tools,
      queues: ["default"],
      ownerLimit: null,
      count: 1,
      leaseMs: 1_000,
    });
    expect(found).toHaveLength(1);
    return found[0] as Claim;
  };
  return {
    id,
    store,
    engine,
    errors,
    claim,
    run: (taken: Claim, verbs: Partial<TaskStore> = {}) =>
      startAttempt({
        ...{
          claim: taken,
          tool,
          clock,
          limits,
          onUnstepped: () => {},
          onEnding: () => {},
          onError: (error) => void errors.push(error),
        },
        verbs: { ...store, ...verbs },
      }),
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}

describe("parking", () => {
  test("a step that would begin while the attempt parks is left to the next one", async () => {
    const parking = signals();
    const begun = signals();
    let runs = 0;
    const tool = taskTool({
      name: "both",
      async run(_args, task) {
        await Promise.all([
          task.elicit("ask", form),
          (async () => {
            await parking.reached();
            begun.next();
            await task.step("pay", () => void (runs += 1), { once: true });
          })(),
        ]);
        return text("done");
      },
    });
    await using bench = await claimed(tool, manualClock());
    const { store } = bench;
    const park: TaskStore["park"] = async (...args) => {
      parking.next();
      await begun.reached();
      // What the handler began by now would be written before this.
      await new Promise(setImmediate);
      return store.park(...args);
    };
    await bench.run(await bench.claim(), { park }).done;
    expect(runs).toBe(0);
    await bench.engine.answer(bench.id, "", { ask: { action: "accept", content: {} } });
    parking.next();
    await bench.run(await bench.claim()).done;
    expect(await bench.engine.read(bench.id, "")).toMatchObject({ result: expect.stringContaining('"done"') });
    expect(runs).toBe(1);
    expect(bench.errors).toEqual([]);
  });

  test("an attempt that holds its waits and loses its lease leaves no timer, and its handler can clean up", async () => {
    const clock = countingClock();
    const cleaned = signals();
    const tool = taskTool({
      name: "careful",
      task: { recovery: "fail" },
      async run(_args, task) {
        try {
          await Promise.all([task.sleep("long", "3d"), task.elicit("ask", form)]);
        } finally {
          cleaned.next();
        }
        return text("done");
      },
    });
    await using bench = await claimed(tool, clock);
    await bench.run(await bench.claim(), { park: async () => false }).done;
    await cleaned.reached();
    expect(clock.open()).toBe(0);
  });

  test("a held wait that is over is forgotten: a long poll keeps nothing of its rounds", async () => {
    const clock = countingClock();
    let rounds = 0;
    const woken = signals();
    const tool = taskTool({
      name: "careful",
      task: { recovery: "fail" },
      async run(_args, task) {
        await task.poll("job", { every: "1s" }, () => {
          rounds += 1;
          woken.next();
          return rounds === 3 ? true : undefined;
        });
        return text("done");
      },
    });
    await using bench = await claimed(tool, clock);
    let journals = 0;
    const { store } = bench;
    const journal: TaskStore["journal"] = (attempt) => {
      journals += 1;
      return store.journal(attempt);
    };
    const attempt = bench.run(await bench.claim(), { journal });
    for (let round = 1; round < 3; round += 1) {
      await woken.reached();
      while (clock.open() === 0) await new Promise(setImmediate);
      clock.advance(1_000);
    }
    await attempt.done;
    expect(rounds).toBe(3);
    // Nothing but timers was waited for: there was nothing to look up.
    expect(journals).toBe(0);
  });

  test("a worker reads no task for the news of its own end", async () => {
    const tool = taskTool({ name: "quick", run: () => text("done") });
    await using bench = workbench([tool]);
    let ending = false;
    let reads = 0;
    const { engine } = bench;
    const read: Engine["read"] = (...of) => {
      if (ending) reads += 1;
      return engine.read(...of);
    };
    const finish: TaskStore["finish"] = (...given) => {
      ending = true;
      return engine.attempts.finish(...given);
    };
    const worker = bench.worker({ engine: { ...engine, read, attempts: { ...engine.attempts, finish } } });
    await bench.settled(await bench.start(tool));
    await worker.close();
    expect(reads).toBe(0);
  });
});

describe("waits", () => {
  test.each(["toString", "constructor", "__proto__"])("anything can be called %s", async (name) => {
    const tool = taskTool({
      name: "named",
      async run(_args, task) {
        const stepped = await task.step(name, () => "stepped");
        const { ok } = await task.elicit(name, { message: "?", schema: z.object({ ok: z.boolean() }) });
        return text(`${stepped} ${String(ok)} ${await task.event<string>(name)}`);
      },
    });
    await using bench = workbench([tool]);
    const id = await bench.start(tool);
    bench.worker();
    const asked = await bench.settled(id);
    expect(asked.status).toBe("input_required");
    await bench.engine.answer(
      id,
      "",
      JSON.parse(`{"${name}":{"action":"accept","content":{"ok":true}}}`) as object as never,
    );
    await bench.until(id, (task) => task.status === "working" && task.activation === null);
    await bench.engine.send(id, name, "sent");
    expect(await bench.settled(id)).toMatchObject({ result: { content: [{ text: "stepped true sent" }] } });
  });

  test("a handler can ask in another way, under the same name, what the client can't be asked in one", async () => {
    const tool = taskTool({
      name: "login",
      task: { input: "caller" },
      async run(_args, task) {
        try {
          await task.elicit("login", { message: "Log in", url: "https://example.test/" });
        } catch (error) {
          if (!(error instanceof TaskError) || error.code !== "INPUT_UNSUPPORTED") throw error;
          await task.elicit("login", form);
        }
        return text("in");
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool, {}, { ...everything, elicitation: { form: true, url: false } });
    expect(await bench.settled(id)).toMatchObject({ inputRequests: { "login#2": { params: { mode: "form" } } } });
  });

  test("a poll that threw throws alike at every replay, and is not run again", async () => {
    let looks = 0;
    const tool = taskTool({
      name: "follow",
      async run(_args, task) {
        const state = await task
          .poll("job", { every: "1s" }, () => {
            looks += 1;
            if (looks === 1) throw new RangeError("gone");
            return "found";
          })
          .catch((error: Error) => `${error.name}: ${error.message}`);
        await task.elicit("go", form);
        return text(state);
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    await bench.settled(id);
    await bench.engine.answer(id, "", { go: { action: "accept", content: {} } });
    expect(await bench.settled(id)).toMatchObject({ result: { content: [{ text: "RangeError: gone" }] } });
    expect(looks).toBe(1);
  });

  test("a poll without a pause lets others work, too", async () => {
    let looks = 0;
    const tool = taskTool({
      name: "eager",
      async run(_args, task) {
        await task.poll("job", { every: 0 }, () => (++looks > 1_000 || others ? true : undefined));
        return text(others);
      },
    });
    let others = false;
    await using bench = workbench([tool]);
    bench.worker();
    const id = await bench.start(tool);
    await bench.until(id, (task) => task.epoch > 0);
    setTimeout(() => (others = true), 20);
    expect(await bench.settled(id)).toMatchObject({ result: { content: [{ text: "true" }] } });
  });

  test("a held wait finds its answer although every hint is lost", async () => {
    const clock = manualClock();
    const tool = taskTool({
      name: "careful",
      task: { recovery: "fail" },
      async run(_args, task) {
        await task.elicit("go", form);
        return text("gone on");
      },
    });
    await using bench = await claimed(tool, clock);
    const deaf = createEngine({ store: { ...bench.store, watch: () => () => {} }, clock });
    const onError = (error: TaskError) => void bench.errors.push(error);
    await using worker = startWorker({
      ...{ engine: deaf, tools: [tool], clock, onError, limits, concurrency: 1, queues: ["default"], ownerLimit: null },
      ...{ leaseMs: 15_000, drainMs: 0 },
    });
    const status = async () => (await bench.engine.read(bench.id, "")).status;
    await expect.poll(status).toBe("input_required");
    await bench.engine.answer(bench.id, "", { go: { action: "accept", content: {} } });
    clock.advance(5_000);
    await expect.poll(status).toBe("completed");
    await worker.close();
  });
});

describe("reports", () => {
  /** The status messages that reached the store, in their order. */
  async function messages(
    run: (task: TaskContext) => Promise<void>,
    world: (bench: Awaited<ReturnType<typeof claimed>>) => Promise<void>,
  ) {
    const clock = manualClock();
    const tool = taskTool({
      name: "telling",
      async run(_args, task) {
        await run(task);
        return text("done");
      },
    });
    await using bench = await claimed(tool, clock);
    const { store } = bench;
    const written: (string | null)[] = [];
    const setStatus: TaskStore["setStatus"] = (attempt, message, progress) => {
      written.push(message);
      return store.setStatus(attempt, message, progress);
    };
    await bench.run(await bench.claim(), { setStatus }).done;
    await world(bench);
    clock.advance(60_000);
    const before = written.length;
    await bench.run(await bench.claim(), { setStatus }).done;
    return { first: written.slice(0, before), second: written.slice(before) };
  }

  test("what was reported before a sleep and after it is not told again at a replay", async () => {
    const found = await messages(
      async (task) => {
        await task.report("a");
        await task.sleep("nap", 0);
        await task.report("b");
        await task.step("one", () => 1);
        await task.report("c");
        await task.elicit("go", form);
        await task.report("d");
      },
      async (bench) => {
        await bench.run(await bench.claim()).done;
        await bench.engine.answer(bench.id, "", { go: { action: "accept", content: {} } });
      },
    );
    // The answer has cleared the message: what stood there before the question comes back, and nothing older.
    expect(found).toEqual({ first: ["a"], second: ["c", "d"] });
  });

  test("an event that nobody awaits holds no report back", async () => {
    const clock = manualClock();
    const tool = taskTool({
      name: "telling",
      async run(_args, task) {
        await task.report("on it");
        await reported.reached();
        return text("done");
      },
    });
    const reported = signals();
    await using bench = await claimed(tool, clock);
    await bench.engine.send(bench.id, "unwanted", 1);
    const { store } = bench;
    const told = signals();
    const setStatus: TaskStore["setStatus"] = (...args) => {
      told.next();
      return store.setStatus(...args);
    };
    const attempt = bench.run(await bench.claim(), { setStatus });
    clock.advance(1_000);
    await told.reached();
    reported.next();
    await attempt.done;
  });
});

describe("ends", () => {
  test("what a handler throws is as limited as what it returns", async () => {
    const long = "x".repeat(50_000);
    const error = taskTool({ name: "error", run: () => Promise.reject(new Error(long)) });
    const protocol = taskTool({
      name: "protocol",
      run: () => Promise.reject(new ProtocolError(-32000, "no", { long })),
    });
    const step = taskTool({
      name: "step",
      run: (_args, task) => task.step("s", () => Promise.reject(new Error(long))),
    });
    await using bench = workbench([error, protocol, step]);
    bench.worker({ limits });
    const small = { content: [{ text: expect.stringContaining("larger than this server keeps") }], isError: true };
    expect(await bench.settled(await bench.start(error))).toMatchObject({ status: "completed", result: small });
    expect(await bench.settled(await bench.start(protocol))).toMatchObject({
      status: "failed",
      error: { code: -32603, message: expect.stringContaining("larger than this server keeps") },
    });
    const tooLarge = { content: [{ text: expect.stringContaining("more than this server records") }], isError: true };
    expect(await bench.settled(await bench.start(step))).toMatchObject({ status: "completed", result: tooLarge });
  });

  test("a tool that may be retried is retried when a step took too long", async () => {
    let runs = 0;
    const tool = taskTool({
      name: "slow",
      task: { retry: { attempts: 2, backoff: 0 } },
      async run(_args, task) {
        await task.step("slow", () => (++runs === 1 ? new Promise(() => {}) : null), { timeout: 5 });
        return text(runs);
      },
    });
    await using bench = workbench([tool]);
    bench.worker();
    expect(await bench.settled(await bench.start(tool))).toMatchObject({ result: { content: [{ text: "2" }] } });
  });

  test("a number of tries that is no number is one try", async () => {
    let runs = 0;
    const tool = taskTool({
      name: "odd",
      run: (_args, task) =>
        task.step("s", () => Promise.reject(new Error(String(++runs))), {
          retry: { attempts: Number.NaN, backoff: 0 },
        }),
    });
    await using bench = workbench([tool]);
    bench.worker();
    expect(await bench.settled(await bench.start(tool))).toMatchObject({ result: { content: [{ text: "1" }] } });
  });

  test("a worker that has left a handler behind watches nothing and has no timer", async () => {
    const clock = countingClock();
    const running = signals();
    const tool = taskTool({
      name: "stubborn",
      run: () => {
        running.next();
        return new Promise(() => {});
      },
    });
    const store = sqlite(":memory:", { clock });
    let watchers = 0;
    const watch: TaskStore["watch"] = (listener) => {
      watchers += 1;
      const stop = store.watch(listener);
      return () => {
        watchers -= 1;
        stop();
      };
    };
    const engine = createEngine({ store: { ...store, watch }, clock });
    const made = { client: noCapabilities, owner: "", args: "{}", answers: "{}", auth: "null" };
    await engine.create({ ...newTaskOf(tool), ...made });
    const worker = startWorker({
      ...{ engine, tools: [tool], clock, onError: () => {}, limits, concurrency: 1, queues: ["default"] },
      ...{ ownerLimit: null, leaseMs: 600_000, drainMs: 0 },
    });
    await running.reached();
    const closed = worker.close();
    while (clock.open() < 2) await new Promise(setImmediate);
    clock.advance(0);
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate);
    clock.advance(1_000);
    await closed;
    await new Promise(setImmediate);
    expect(watchers).toBe(0);
    expect(clock.open()).toBe(0);
    await store[Symbol.asyncDispose]();
  });
});
