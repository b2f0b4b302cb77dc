import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { blobFolder } from "../../src/blobs.ts";
import type { TaskError } from "../../src/errors.ts";
import { manualClock, type ManualClock } from "../../src/store/contract/manual-clock.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { taskTool, type TaskContext, type TaskSettings } from "../../src/tool.ts";
import { text, workbench, type Workbench } from "./workbench.ts";

const hour = 3_600_000;
const answer = z.object({ v: z.string() });
const accept = (v: string) => ({ action: "accept", content: { v } });
const codeOf = (error: unknown) => (error as TaskError).code;

/** A tool whose runs are counted. */
function counting(run: (task: TaskContext) => Promise<unknown>, task: TaskSettings = {}) {
  const runs = { count: 0 };
  const tool = taskTool({
    name: "waits",
    task,
    async run(_args, context) {
      runs.count += 1;
      return text(await run(context));
    },
  });
  return { tool, runs };
}

/** Runs it on a worker until it waits for something that a clock brings about. */
async function waiting(bench: Workbench, tool: Parameters<Workbench["start"]>[0]): Promise<string> {
  bench.worker();
  const id = await bench.start(tool);
  await bench.until(id, (task) => task.activation === null);
  return id;
}

const ended = (bench: Workbench, id: string) => bench.until(id, ({ status }) => status === "completed");

describe("a wait with a timeout", () => {
  const waits: [string, (task: TaskContext) => Promise<unknown>][] = [
    ["elicit", (task) => task.elicit("q", { message: "?", schema: answer, timeout: "1h" })],
    ["elicit, for a page", (task) => task.elicit("q", { message: "?", url: "https://example.com", timeout: "1h" })],
    ["elicit.raw", (task) => task.elicit.raw("q", { message: "?", schema: answer, timeout: "1h" })],
    ["approve", (task) => task.approve("q", "?", { timeout: "1h" })],
    ["sample", (task) => task.sample("q", { messages: [], maxTokens: 1 }, { timeout: "1h" })],
    ["roots", (task) => task.roots("q", { timeout: "1h" })],
    ["event", (task) => task.event("q", { timeout: "1h" })],
  ];

  test.each(waits)("%s throws when it passes, at every attempt, and the handler goes on", async (_name, wait) => {
    const clock = manualClock();
    const { tool, runs } = counting(async (task) => {
      const code = await wait(task).catch(codeOf);
      await task.approve("go", "Go on?");
      return code;
    });
    await using bench = workbench([tool], { clock });
    const id = await waiting(bench, tool);
    clock.advance(hour - 1);
    clock.advance(1);
    expect(await bench.until(id, (task) => "go" in task.inputRequests)).toMatchObject({ inputRequests: { go: {} } });
    await bench.engine.answer(id, "", { go: { action: "accept", content: {} }, q: accept("late") });
    expect(await ended(bench, id)).toMatchObject({ result: text("WAIT_TIMED_OUT") });
    expect(runs.count).toBe(3);
  });

  test("uncaught, it is the tool's error, says which wait, and is not tried again", async () => {
    const clock = manualClock();
    const again = { retry: { attempts: 3, backoff: 1 } };
    const { tool, runs } = counting((task) => task.approve("ship", "Ship it?", { timeout: "1h" }), again);
    await using bench = workbench([tool], { clock });
    const id = await waiting(bench, tool);
    clock.advance(hour);
    const said = 'No answer came within the time that the tool waits for one. Its key: "ship".';
    expect(await ended(bench, id)).toMatchObject({ result: { isError: true, content: [{ text: said }] } });
    expect(runs.count).toBe(2);
  });

  test("an answer in time is no different from one without", async () => {
    const clock = manualClock();
    const { tool } = counting(async (task) => {
      const { v } = await task.elicit("q", { message: "?", schema: answer, timeout: "1h" });
      await task.sleep("night", "12h");
      return v + (await task.event<string>("e", { timeout: "1h" }));
    });
    await using bench = workbench([tool], { clock });
    const id = await waiting(bench, tool);
    clock.advance(hour - 1);
    await bench.engine.answer(id, "", { q: accept("a") });
    await bench.until(id, (task) => task.epoch === 2 && task.activation === "queued");
    clock.advance(12 * hour);
    await bench.until(id, (task) => task.epoch === 3 && task.activation === null);
    await bench.engine.send(id, "e", "b");
    expect(await ended(bench, id)).toMatchObject({ result: text("ab") });
  });

  test("what its schema refuses is asked again within the same time", async () => {
    const clock = manualClock();
    const even = z.object({ n: z.number().refine((n) => n % 2 === 0, "must be even") });
    const { tool } = counting((task) => task.elicit("n", { message: "N?", schema: even, timeout: "1h" }).catch(codeOf));
    await using bench = workbench([tool], { clock });
    const id = await waiting(bench, tool);
    clock.advance(hour / 2);
    await bench.engine.answer(id, "", { n: { action: "accept", content: { n: 3 } } });
    await bench.until(id, (task) => "n#2" in task.inputRequests);
    clock.advance(hour / 2);
    expect(await ended(bench, id)).toMatchObject({ result: text("WAIT_TIMED_OUT") });
  });

  test("side by side, one that times out goes on alone, and the others are answered as ever", async () => {
    const clock = manualClock();
    const ran: string[] = [];
    const { tool } = counting(async (task) => {
      const ask = (key: string, timeout?: number) => {
        const limit = timeout === undefined ? {} : { timeout };
        return task.elicit(key, { message: "?", schema: answer, ...limit }).then(({ v }) => v);
      };
      const first = ask("a", hour).catch(async (error: unknown) => {
        await task.step("without a", () => void ran.push("without a"));
        return codeOf(error);
      });
      return (await Promise.all([first, ask("b", 2 * hour).catch(codeOf), ask("c"), ask("d")])).join();
    });
    await using bench = workbench([tool], { clock });
    const id = await waiting(bench, tool);
    await bench.engine.answer(id, "", { c: accept("c") });
    clock.advance(hour);
    await bench.until(id, (task) => task.epoch === 2 && task.activation === null);
    const asked = await bench.settled(id);
    expect(Object.keys((asked as { inputRequests: object }).inputRequests)).toEqual(["b", "d"]);
    expect(ran).toEqual(["without a"]);
    await bench.engine.answer(id, "", { a: accept("late"), d: accept("d") });
    await bench.until(id, (task) => task.epoch === 3 && task.activation === null);
    clock.advance(hour);
    expect(await ended(bench, id)).toMatchObject({ result: text("WAIT_TIMED_OUT,WAIT_TIMED_OUT,c,d") });
    expect(ran).toEqual(["without a"]);
  });

  test("a handler that leaves the others behind isn't held up by them", async () => {
    const clock = manualClock();
    const { tool } = counting(async (task) => {
      const boss = task.approve("boss", "Boss?", { timeout: "1h" });
      const both = Promise.all([boss, task.approve("left", "Left?")]);
      const code = await both.catch(codeOf);
      const { v } = await task.elicit("deputy", { message: "?", schema: answer });
      await task.sleep("nap", 5);
      return [code, v, await task.event<number>("paid")].join(" ");
    });
    await using bench = workbench([tool], { clock });
    const id = await waiting(bench, tool);
    clock.advance(hour);
    await bench.until(id, (task) => "deputy" in task.inputRequests);
    await bench.engine.answer(id, "", { deputy: accept("yes") });
    await bench.until(id, (task) => task.epoch === 3 && task.activation === "queued");
    clock.advance(5);
    await bench.until(id, (task) => task.epoch === 4 && task.activation === null);
    await bench.engine.send(id, "paid", 7);
    expect(await ended(bench, id)).toMatchObject({ result: text("WAIT_TIMED_OUT yes 7") });
  });

  test("a question behind a step whose value is kept apart stays open when another one times out", async () => {
    const clock = manualClock();
    const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-waits-"));
    const { tool } = counting(async (task) => {
      const first = task.approve("first", "?", { timeout: "1h" }).catch(async () => {
        await task.step("large", () => "x".repeat(1_000));
        await task.approve("behind", "?");
      });
      const second = task.approve("second", "?", { timeout: "2h" }).catch(() => {});
      await Promise.all([first, second, task.approve("third", "?")]);
    });
    await using bench = workbench([tool], { clock });
    bench.worker({ limits: { maxResultBytes: 1_000, maxStepBytes: 100, blobs: blobFolder(folder) } });
    const id = await bench.start(tool);
    const asked = async (epoch: number) => {
      const task = await bench.until(id, (task) => task.epoch === epoch && task.activation === null);
      return Object.keys((task as { inputRequests: object }).inputRequests);
    };
    expect(await asked(1)).toEqual(["first", "second", "third"]);
    clock.advance(hour);
    expect(await asked(2)).toEqual(["second", "third", "behind"]);
    clock.advance(hour);
    expect(await asked(3)).toEqual(["third", "behind"]);
    rmSync(folder, { recursive: true });
  });

  test("the time passes while no process runs, and counts from the first asking", async () => {
    const clock = manualClock();
    await using store = sqlite(":memory:", { clock });
    const shared = { ...store, [Symbol.asyncDispose]: async () => {} };
    const { tool } = counting((task) => task.approve("go", "Go?", { timeout: "1h" }).catch(codeOf));
    let id = "";
    {
      await using bench = workbench([tool], { clock, store: shared });
      id = await waiting(bench, tool);
    }
    clock.advance(hour);
    await using bench = workbench([tool], { clock, store: shared });
    // Nobody has looked yet, and it is too late all the same.
    await bench.engine.answer(id, "", { go: { action: "accept", content: {} } });
    bench.worker();
    expect(await ended(bench, id)).toMatchObject({ result: text("WAIT_TIMED_OUT") });
  });

  test("no duration is refused where it is given", async () => {
    const { tool } = counting((task) => task.event("e", { timeout: "soon" as never }));
    await using bench = workbench([tool]);
    bench.worker();
    const task = await bench.settled(await bench.start(tool));
    expect(task).toMatchObject({ result: { isError: true, content: [{ text: expect.stringContaining("soon") }] } });
  });
});

describe("a poll with a timeout", () => {
  test.each([
    ["gives up", false, "WAIT_TIMED_OUT", 3],
    ["looks a last time", true, "found", 3],
  ])("%s when it passes", async (_name, found, expected, looked) => {
    const clock = manualClock();
    let looks = 0;
    const { tool } = counting(async (task) => {
      const look = () => (++looks === 3 && found ? "found" : undefined);
      const result = await task.poll("job", { every: "40m", timeout: "1h" }, look).catch(codeOf);
      await task.approve("go", "Go on?");
      return result;
    });
    await using bench = workbench([tool], { clock });
    bench.worker();
    const id = await bench.start(tool);
    for (const [epoch, ms] of [
      [1, (hour * 2) / 3],
      [2, hour / 3],
    ] as const) {
      await bench.until(id, (task) => task.epoch === epoch && task.activation === "queued");
      clock.advance(ms);
    }
    await bench.until(id, (task) => "go" in task.inputRequests);
    await bench.engine.answer(id, "", { go: { action: "accept", content: {} } });
    expect(await ended(bench, id)).toMatchObject({ result: text(expected) });
    expect(looks).toBe(looked);
  });

  test("one beside an open question gives up all the same", async () => {
    const clock = manualClock();
    const ran: string[] = [];
    const { tool } = counting(async (task) => {
      const poll = task
        .poll("job", { every: "1m", timeout: "1h" }, () => undefined)
        .catch(async (error: unknown) => {
          await task.step("without it", () => void ran.push("without it"));
          return codeOf(error);
        });
      return (await Promise.all([poll, task.approve("go", "Go?").then(() => "yes")])).join();
    });
    await using bench = workbench([tool], { clock });
    const id = await waiting(bench, tool);
    clock.advance(hour);
    await bench.until(id, (task) => task.epoch === 2 && task.activation === null);
    // Its handler goes on in the attempt that it gave up in, however long the question stays open.
    expect(ran).toEqual(["without it"]);
    await bench.engine.answer(id, "", { go: { action: "accept", content: {} } });
    expect(await ended(bench, id)).toMatchObject({ result: text("WAIT_TIMED_OUT,yes") });
  });
});

describe("a timeout where waits are held, or a cancel comes", () => {
  /** Moves on second by second, as leases want to be renewed, until the task is as wanted. */
  async function pass(bench: Workbench, clock: ManualClock, id: string, wanted: (status: string) => boolean) {
    const seen = bench.until(id, ({ status }) => wanted(status));
    let over = false;
    void seen.then(() => (over = true));
    while (!over) {
      clock.advance(1_000);
      for (let n = 0; n < 5; n++) await turn();
    }
    return seen;
  }

  test("what must not run twice goes on in the same attempt", async () => {
    const clock = manualClock();
    const { tool, runs } = counting(
      async (task) => {
        const [asked, event] = await Promise.all([
          task.elicit("q", { message: "?", schema: answer, timeout: "20s" }).catch(codeOf),
          task.event("e", { timeout: "40s" }).catch(codeOf),
        ]);
        const polled = await task.poll("p", { every: "7s", timeout: "20s" }, () => undefined).catch(codeOf);
        const { v } = await task.elicit("last", { message: "?", schema: answer, timeout: "1h" });
        return [asked, event, polled, v].join();
      },
      { recovery: "fail" },
    );
    await using bench = workbench([tool], { clock });
    bench.worker();
    const id = await bench.start(tool);
    await bench.settled(id);
    const began = clock.now();
    await pass(bench, clock, id, (status) => status === "working");
    expect(clock.now() - began).toBeGreaterThanOrEqual(20_000);
    await pass(bench, clock, id, (status) => status === "input_required");
    expect(clock.now() - began).toBeGreaterThanOrEqual(60_000);
    await bench.engine.answer(id, "", { last: accept("yes") });
    const late = "WAIT_TIMED_OUT";
    expect(await ended(bench, id)).toMatchObject({ result: text([late, late, late, "yes"].join()) });
    expect(runs.count).toBe(1);
  });

  test("with onCancel unwind, a cancel before it throws CANCELLED, and one after it finds the handler cleaning up", async () => {
    const clock = manualClock();
    const seen: string[] = [];
    const { tool } = counting(
      async (task) => {
        await task.approve("go", "Go?", { timeout: "1h" }).catch((error: unknown) => seen.push(codeOf(error)));
        await task.event("never").catch((error: unknown) => {
          seen.push(codeOf(error));
          throw error;
        });
      },
      { onCancel: "unwind" },
    );
    await using bench = workbench([tool], { clock });
    const early = await waiting(bench, tool);
    await bench.engine.cancel(early, "");
    await bench.until(early, ({ status }) => status === "cancelled");
    expect(seen.splice(0)).toEqual(["CANCELLED", "CANCELLED"]);
    const late = await bench.start(tool);
    await bench.until(late, (task) => task.activation === null);
    clock.advance(hour);
    await bench.until(late, (task) => task.epoch === 2 && task.activation === null);
    await bench.engine.cancel(late, "");
    await bench.until(late, ({ status }) => status === "cancelled");
    expect(seen).toEqual(["WAIT_TIMED_OUT", "WAIT_TIMED_OUT", "CANCELLED"]);
  });
});
