import { DatabaseSync } from "node:sqlite";
import { setImmediate, setTimeout as pause } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { taskTool } from "../../src/tool.ts";
import type { Fields, Wire } from "../wire/client.ts";
import { bench, text } from "./bench.ts";
import { folder, journal, program, until, type Program } from "./setup.ts";

/*
 * Faults of other implementations in running and recovering work.
 *
 * | Not here | Why                                                                                                |
 * | -------- | -------------------------------------------------------------------------------------------------- |
 * | BL-56    | A SQLite file belongs to one host with one clock; several hosts: test/postgres/clocks.test.ts.      |
 * | BL-60    | Sizes are a matter of the store: see store.test.ts.                                                |
 */

const said = (task: Fields | undefined) => task?.content?.[0]?.text;
const take = (given: string) => ({ action: "accept", content: { value: given } });

/** A front end, and a place where workers of the same database and their journal are. */
async function house(flags: readonly string[] = []) {
  const files = folder();
  const file = files.file("tasks.db");
  const db = ["--db", file, ...flags];
  const path = files.file("journal");
  const front = await program([...db, "--role", "front"]);
  const workers: Program[] = [];
  return {
    path,
    journal: journal(path),
    front,
    wire: front.wire,
    async worker(...more: string[]): Promise<Program> {
      const started = await program([...db, "--role", "worker", ...more]);
      workers.push(started);
      return started;
    },
    /** Stops a process where it keeps nobody from writing: what holds SQLite's lock holds up all others of the file. */
    async freeze({ pid }: Program): Promise<void> {
      using store = new DatabaseSync(file, { timeout: 0 });
      for (;;) {
        process.kill(pid, "SIGSTOP");
        try {
          store.exec("BEGIN IMMEDIATE; ROLLBACK");
          return;
        } catch {
          process.kill(pid, "SIGCONT");
          await setImmediate();
        }
      }
    },
    async [Symbol.asyncDispose]() {
      for (const process of [front, ...workers]) await process[Symbol.asyncDispose]();
      files[Symbol.dispose]();
    },
  };
}

const started = (file: ReturnType<typeof journal>, tag: string, times = 1) =>
  until(`${tag} started ${times} times`, () => file.count("start", tag) >= times);

/** Answers both questions of `ask_twice`. */
async function answerTwice(wire: Wire, id: string, between: () => Promise<unknown> = async () => {}): Promise<Fields> {
  await wire.until(id, "input_required");
  await wire.update(id, { first: take("1") });
  await wire.untilTask(id, ({ inputRequests }) => inputRequests?.second !== undefined);
  await between();
  await wire.update(id, { second: take("2") });
  return wire.until(id);
}

// Most of each is waiting: side by side they take a third of the time.
describe.concurrent("work and recovery", () => {
  test("BL-50: after a kill the task runs again on a new worker, in much less than its lease", async () => {
    await using place = await house();
    const first = await place.worker("--lease", "60000");
    const id = await place.wire.start("journal", { path: place.path, tag: "bl50", seconds: 1.5 });
    await started(place.journal, "bl50");
    await first.stop("SIGKILL");
    await place.worker("--lease", "60000");
    await started(place.journal, "bl50", 2);
    expect((await place.wire.until(id)).status).toBe("completed");
    expect(place.journal.count("start", "bl50")).toBe(2);
  });

  test("BL-50, BL-51: a frozen worker loses its task when the lease runs out, and what it writes afterwards changes nothing", async () => {
    await using place = await house();
    const frozen = await place.worker("--lease", "900");
    const id = await place.wire.start("steps", { path: place.path, n: 20, ms: 100 });
    await until("two steps ran", () => place.journal.count("step") >= 2);
    await place.freeze(frozen);
    const other = await place.worker("--lease", "900");
    const ofOther = () => place.journal.lines().filter(([, , pid]) => pid === String(other.pid));
    await until("the other worker took over", () => ofOther().length > 0);
    process.kill(frozen.pid, "SIGCONT");
    const ended = await place.wire.until(id);
    expect(said(ended.result)).toBe("20 steps");
    // The frozen one finishes at most the step that it was in; each of the others ran once, the last ones at the other.
    expect(place.journal.count("step", "20")).toBe(1);
    expect(ofOther().at(-1)?.[1]).toBe("20");
    const numbers = place.journal.lines().map(([, number]) => number);
    expect(new Set(numbers).size).toBe(20);
    expect(numbers.length).toBeLessThanOrEqual(21);
    await pause(300);
    const { pollIntervalMs: _, ...after } = (await place.wire.get(id)).body.result ?? {};
    expect(after).toEqual({ ...ended, pollIntervalMs: undefined });
  });

  test("BL-51: a task longer than its lease runs once while its worker lives", async () => {
    await using place = await house();
    await place.worker("--lease", "1500");
    await place.worker("--lease", "1500");
    const id = await place.wire.start("journal", { path: place.path, tag: "bl51", seconds: 4 });
    expect((await place.wire.until(id)).status).toBe("completed");
    expect(place.journal.count("start", "bl51")).toBe(1);
  });

  test("BL-52: a task that kills its workers is given up after three attempts, and others still run", async () => {
    await using place = await house(["--attempts", "3"]);
    let over = false;
    const supervise = async () => {
      while (!over) {
        const worker = await place.worker("--concurrency", "2");
        await Promise.race([worker.exited, until("the test is over", () => over, 30_000)]);
      }
    };
    const id = await place.wire.start("crash", { path: place.path });
    const supervisor = supervise();
    const ended = await place.wire.until(id);
    const next = await place.wire.start("journal", { path: place.path, tag: "after" });
    expect((await place.wire.until(next)).status).toBe("completed");
    over = true;
    await supervisor;
    expect(ended).toMatchObject({ status: "failed", error: { code: -32603 } });
    expect(ended.error?.message).toMatch(/3 times/);
    expect(place.journal.count("start", "crash")).toBe(3);
  });

  test("BL-52: tasks that run beside one that kills its workers are not given up with it", async () => {
    await using place = await house(["--attempts", "3"]);
    let over = false;
    const supervise = async () => {
      while (!over) {
        const worker = await place.worker("--concurrency", "10");
        await Promise.race([worker.exited, until("the test is over", () => over, 30_000)]);
      }
    };
    const beside = await Promise.all(
      ["a", "b", "c"].map((tag) => place.wire.start("journal", { path: place.path, tag, seconds: 1 })),
    );
    const id = await place.wire.start("crash", { path: place.path });
    const supervisor = supervise();
    expect(await place.wire.until(id)).toMatchObject({ status: "failed" });
    for (const task of beside) expect(await place.wire.until(task)).toMatchObject({ status: "completed" });
    over = true;
    await supervisor;
  });

  test("BL-54: without a crash, each step around two questions runs once", async () => {
    await using place = await house();
    await place.worker();
    const id = await place.wire.start("ask_twice", { path: place.path });
    expect(said((await answerTwice(place.wire, id)).result)).toBe("first=1 second=2");
    expect(place.journal.lines().map(([word]) => word)).toEqual(["before", "mid", "after"]);
  });

  test("BL-54: with a crash between the questions, recorded steps are not repeated", async () => {
    await using place = await house();
    const first = await place.worker();
    const id = await place.wire.start("ask_twice", { path: place.path });
    const ended = await answerTwice(place.wire, id, async () => {
      await first.stop("SIGKILL");
      await place.worker();
    });
    expect(said(ended.result)).toBe("first=1 second=2");
    expect(place.journal.lines().map(([word]) => word)).toEqual(["before", "mid", "after"]);
  });

  test("BL-55: a worker that starts leaves alone what a live one runs, and later takes over what that one left", async () => {
    await using place = await house();
    const first = await place.worker("--lease", "60000");
    const id = await place.wire.start("journal", { path: place.path, tag: "bl55", seconds: 60 });
    await started(place.journal, "bl55");
    const second = await place.worker();
    // It is at work, and had every chance.
    const other = await place.wire.start("journal", { path: place.path, tag: "other" });
    await place.wire.until(other);
    expect(place.journal.count("start", "bl55")).toBe(1);
    await first.stop("SIGKILL");
    await started(place.journal, "bl55", 2);
    expect(place.journal.lines().findLast(([word, tag]) => word === "start" && tag === "bl55")?.[2]).toBe(
      String(second.pid),
    );
    await place.wire.cancel(id);
    expect((await place.wire.until(id)).status).toBe("cancelled");
  });

  test("BL-57: three polite ends cost no attempt, take no longer than the grace and hand the task over at once", async () => {
    await using place = await house(["--attempts", "2"]);
    const id = await place.wire.start("journal", { path: place.path, tag: "bl57", seconds: 2.8 });
    for (let round = 1; round <= 3; round++) {
      const worker = await place.worker("--lease", "60000");
      await started(place.journal, "bl57", round);
      const began = performance.now();
      expect(await worker.stop("SIGTERM")).toEqual({ code: 0, signal: null });
      // Two seconds of drain, and at most one for handlers that don't listen.
      expect(performance.now() - began).toBeLessThan(6_000);
      expect(place.journal.count("end", "bl57")).toBe(round);
      expect((await place.wire.get(id)).body.result?.status).toBe("working");
    }
    await place.worker();
    await started(place.journal, "bl57", 4);
    expect((await place.wire.until(id)).status).toBe("completed");
    expect(place.journal.count("start", "bl57")).toBe(4);
  }, 45_000);

  test("BL-57: a subscription ends gracefully when its server is told to end", async () => {
    await using server = await program([]);
    const id = await server.wire.start("ask_twice");
    const stream = await server.wire.listen([id], { id: "sub" });
    await stream.find(({ params }) => params?.status === "input_required");
    const ended = server.stop("SIGTERM");
    const last = await stream.find(({ result }) => result !== undefined);
    expect([last.id, last.result?.resultType]).toEqual(["sub", "complete"]);
    expect(await stream.next()).toBeUndefined();
    expect((await ended).code).toBe(0);
  });

  test("BL-58: a cancel reaches a worker in another process, which stops, frees its slot and publishes nothing", async () => {
    await using place = await house();
    await place.worker("--concurrency", "1");
    const id = await place.wire.start("journal", { path: place.path, tag: "bl58", seconds: 30 });
    await started(place.journal, "bl58");
    const next = await place.wire.start("journal", { path: place.path, tag: "next" });
    const began = performance.now();
    await place.wire.cancel(id);
    const cancelled = await place.wire.until(id);
    expect(cancelled.status).toBe("cancelled");
    expect(place.journal.count("end", "bl58")).toBe(1);
    expect((await place.wire.until(next)).status).toBe("completed");
    expect(performance.now() - began).toBeLessThan(8_000);
    expect((await place.wire.get(id)).body.result).toEqual(cancelled);
  });

  test("BL-58: a handler that ignores the cancel is left behind after the grace, and what it returns is not published", async () => {
    const gate = Promise.withResolvers<void>();
    let returned = false;
    const deaf = taskTool({
      name: "deaf",
      async run() {
        await gate.promise;
        returned = true;
        return text("I did it anyway");
      },
    });
    const quick = taskTool({ name: "quick", run: () => text("quick") });
    await using own = await bench([deaf, quick], {
      tasks: { cancelGrace: 200 },
      work: { concurrency: 1, lease: "600ms" },
    });
    const wire = own.wire();
    const id = await wire.start("deaf");
    await wire.untilTask(id, ({ status }) => status === "working");
    await until("a worker has it", async () => (await own.store.list({ limit: 1 }))[0]?.epoch === 1);
    await wire.cancel(id);
    const next = await wire.start("quick");
    const cancelled = await wire.until(id);
    expect(cancelled.status).toBe("cancelled");
    expect((await wire.until(next)).status).toBe("completed");
    gate.resolve();
    await until("the handler returned", () => returned);
    await pause(50);
    expect((await wire.get(id)).body.result).toEqual(cancelled);
  });
});
