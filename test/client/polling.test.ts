import { getEventListeners, once } from "node:events";
import { expect, test, vi } from "vitest";
import { systemClock } from "../../src/clock.ts";
import { TaskError, type TaskSnapshot } from "../../src/client/index.ts";
import { retryAfter } from "../../src/client/http.ts";
import { backoff, interval } from "../../src/client/pace.ts";
import { ManualClock } from "./clock.ts";
import { type FakeServer, type Reply, type Script, fakeServer } from "./fake-http.ts";
import { connected } from "./setup.ts";
import { ack, asking, cancelled, completed, created, failed, form, text, working } from "./wire.ts";

/** A task whose readings are answered by `polls`, one each, the last one for ever. */
const polled =
  (polls: ((reply: Reply) => void)[], seed: object = {}): Script =>
  ({ method }, reply) => {
    if (method === "tools/call") reply.result(created(seed));
    else if (method === "tasks/get") (polls.length > 1 ? polls.shift()! : polls[0]!)(reply);
    else reply.result(ack);
  };
const says = (state: object) => (reply: Reply) => reply.result(state);
const count = (server: FakeServer, method: string) => server.of(method).length;

test("the seed interval is waited first, a changed one is followed, and no clock but ours is believed", async () => {
  const old = { createdAt: "2000-01-01T00:00:00.000Z", ttlMs: 60_000 };
  await using server = await fakeServer(
    polled(
      [
        says(working({ ...old, pollIntervalMs: 400 })),
        says(working({ ...old, pollIntervalMs: 3_000, ttlMs: 90_000 })),
        says(working({ ...old, pollIntervalMs: undefined })),
        says(completed()),
      ],
      { ...old, pollIntervalMs: 1_500 },
    ),
  );
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const result = tasks.callTool({ name: "x" });
  expect(await clock.waiting()).toBe(1_500);
  clock.advance(1_499);
  expect(count(server, "tasks/get")).toBe(0);
  expect([await clock.pass(), await clock.pass(), await clock.pass(), await clock.pass()]).toEqual([
    1, 400, 3_000, 1_000,
  ]);
  expect(await result).toEqual(text("done"));
  await tasks.close();
});

test.each([
  [0, 250],
  [0.4, 250],
  [-5, 1_000],
  [Number.NaN, 1_000],
  ["abc", 1_000],
  [undefined, 1_000],
  [null, 1_000],
  [800.5, 801],
  [5_000, 5_000],
  [1e12, 600_000],
  [Number.POSITIVE_INFINITY, 600_000],
])("a poll interval of %s is waited as %i ms", (hint, wait) => {
  expect(interval(hint)).toBe(wait);
});

test.each([0, -5, "abc", 0.4, undefined])("a poll interval of %s from the server makes no hot loop", async (hint) => {
  await using server = await fakeServer(polled([says(working({ pollIntervalMs: hint }))], { pollIntervalMs: hint }));
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const result = tasks.callTool({ name: "x" }, { deadline: 3_000 });
  result.catch(() => {});
  for (let elapsed = 0; elapsed < 3_000;) elapsed += await clock.pass();
  await expect(result).rejects.toMatchObject({ code: "DEADLINE_PASSED" });
  expect(count(server, "tasks/get")).toBeLessThan(13);
  await tasks.close();
});

test("a huge poll interval doesn't park the caller: the deadline ends the waiting, and not the task", async () => {
  await using server = await fakeServer(polled([says(completed())], { pollIntervalMs: 1e12 }));
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const result = tasks.callTool({ name: "x" }, { deadline: "2s" });
  result.catch(() => {});
  expect(await clock.waiting()).toBe(2_000);
  // The wait for the poll itself comes just after the deadline's.
  await vi.waitFor(() => expect(count(server, "tools/call")).toBe(1));
  clock.advance(2_000);
  await expect(result).rejects.toSatisfy((error: TaskError) =>
    ["DEADLINE_PASSED", "MAY_HAVE_STARTED"].includes(error.code),
  );
  expect(count(server, "tasks/cancel")).toBe(0);
  expect(await tasks.resume("task-1").result()).toEqual(text("done"));
  await tasks.close();
});

test("a deadline's error names the task, which can be resumed", async () => {
  await using server = await fakeServer(polled([says(working())]));
  const tasks = await connected(server);
  const thrown = { code: "DEADLINE_PASSED", data: { taskId: "task-1" } };
  await expect(tasks.callTool({ name: "x" }, { deadline: 400 })).rejects.toMatchObject(thrown);
  expect(count(server, "tasks/cancel")).toBe(0);
  await tasks.close();
});

test("polls that fail in passing are repeated and end nothing", async () => {
  await using server = await fakeServer(
    polled(
      [
        (reply) => reply.status(503),
        (reply) => reply.status(429, { "retry-after": "17" }),
        (reply) => reply.status(408),
        (reply) => reply.reset(),
        (reply) =>
          reply.raw.writeHead(200, { "content-type": "application/json" }).end('{"jsonrpc":"2.0","id":1,"resu'),
        (reply) => reply.raw.writeHead(200, { "content-type": "application/json" }).end('{"some":"thing"}'),
        (reply) => reply.raw.writeHead(200, { "content-type": "text/event-stream" }).end(": nothing\n\n"),
        (reply) => reply.raw.writeHead(200, { "content-type": "text/html" }).end("<p>Back soon</p>"),
        () => {},
        (reply) => reply.error(-32603, "The store is busy"),
        says(completed("at last")),
      ],
      { pollIntervalMs: 10_000 },
    ),
  );
  const clock = new ManualClock();
  // Each is told: they are further apart than one outage is told once.
  const failures: unknown[] = [];
  const tasks = await connected(server, { clock, onError: (error) => failures.push(error) });
  const result = tasks.callTool({ name: "x" });
  const waits: number[] = [];
  for (let polls = 1; polls <= 11; polls += 1) {
    waits.push(await clock.pass(50_000));
    await vi.waitFor(() => expect(count(server, "tasks/get")).toBe(polls));
    if (polls === 9) clock.advance(30_000);
    if (polls < 11) await vi.waitFor(() => expect(failures).toHaveLength(polls));
  }
  expect(await result).toEqual(text("at last"));
  expect(waits[2]).toBe(17_000);
  for (const [index, wait] of waits.entries()) if (index > 0) expect(wait).toBeGreaterThanOrEqual(250);
  expect(count(server, "tools/call")).toBe(1);
  await tasks.close();
});

test("the wait after failures grows and is drawn by lot, and never undercuts the interval", () => {
  expect(backoff(1, 1_000, () => 0)).toBe(1_000);
  expect(backoff(1, 250, () => 1)).toBe(1_250);
  expect(backoff(3, 250, () => 1)).toBe(4_250);
  expect(backoff(50, 250, () => 1)).toBe(30_250);
  expect(backoff(4, 250)).not.toBe(backoff(4, 250));
});

test("Retry-After is read as seconds and as a date", () => {
  const now = Date.UTC(2026, 7, 1);
  expect(retryAfter("7", now)).toBe(7_000);
  expect(retryAfter("Sat, 01 Aug 2026 00:00:09 GMT", now)).toBe(9_000);
  expect(retryAfter("soon", now)).toBeUndefined();
  expect(retryAfter(null, now)).toBeUndefined();
});

test.each([
  ["an unknown id", (reply: Reply) => reply.error(-32602, "Task not found"), "TASK_NOT_FOUND"],
  ["an expired id", (reply: Reply) => reply.error(-32602, "Failed to retrieve task: Task has expired"), "TASK_EXPIRED"],
  ["a 404", (reply: Reply) => reply.status(404), "REFUSED"],
  ["a server without tasks", (reply: Reply) => reply.error(-32601, "Method not found"), "REFUSED"],
  ["a missing token", (reply: Reply) => reply.status(401), "REFUSED"],
  ["a missing declaration", (reply: Reply) => reply.error(-32021, "Missing capability"), "EXTENSION_REQUIRED"],
])("%s ends the waiting with its own code and the task's id", async (_, answer, code) => {
  await using server = await fakeServer(polled([answer]));
  const tasks = await connected(server);
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code, data: { taskId: "task-1" } });
  expect(count(server, "tasks/get")).toBe(1);
  await tasks.close();
});

test("an outage is told once in a while for each code, however many tasks are polled; all else each time", async () => {
  let away = (reply: Reply) => reply.status(503);
  let id = 0;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") reply.result(created({ taskId: `task-${(id += 1)}` }));
    else away(reply);
  });
  const clock = new ManualClock();
  const told: [number, unknown][] = [];
  const onError = (error: unknown) => void told.push([clock.now(), error instanceof TaskError ? error.code : error]);
  const tasks = await connected(server, { clock, onError, pollTimeout: "1h" });
  const careless = () => {
    throw "careless";
  };
  const start = async () => await tasks.start({ name: "x" }, { onUpdate: careless });
  await Promise.all([start(), start(), start()]);
  expect(told.map(([, error]) => error)).toEqual(["careless", "careless", "careless"]);
  const begun = clock.now();
  const poll = async (until: () => boolean) => {
    while (!until()) {
      const polls = count(server, "tasks/get");
      await clock.pass(40_000);
      await vi.waitFor(() => expect(count(server, "tasks/get")).toBeGreaterThan(polls));
    }
  };
  const of = (code: string) => told.filter(([, error]) => error === code).map(([at]) => at);
  await poll(() => clock.now() - begun > 60_000);
  const times = of("REFUSED");
  expect(times.length).toBeGreaterThan(1);
  expect(times.length).toBeLessThanOrEqual(7);
  for (const [index, at] of times.entries())
    if (index > 0) expect(at - times[index - 1]!).toBeGreaterThanOrEqual(10_000);
  away = (reply) => reply.reset();
  await poll(() => of("CONNECTION_LOST").length > 0);
  expect(told.filter(([, error]) => error === "careless")).toHaveLength(3);
  await tasks.close();
});

test("a server that stays away is waited for until the task's lifetime is over", async () => {
  await using server = await fakeServer(polled([(reply) => reply.reset()], { ttlMs: 20_000 }));
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const result = tasks.callTool({ name: "x" });
  result.catch(() => {});
  const started = clock.now();
  while (clock.now() - started <= 20_000) await clock.pass(40_000);
  await expect(result).rejects.toMatchObject({ code: "TASK_EXPIRED", data: { taskId: "task-1" } });
  await tasks.close();
});

test("an abort during a long wait returns at once and sends one tasks/cancel", async () => {
  await using server = await fakeServer(polled([says(working())], { pollIntervalMs: 60_000 }));
  const tasks = await connected(server);
  const controller = new AbortController();
  const seeded = Promise.withResolvers<TaskSnapshot>();
  const result = tasks.callTool({ name: "x" }, { signal: controller.signal, onUpdate: seeded.resolve });
  await seeded.promise;
  const aborted = performance.now();
  controller.abort(new Error("enough"));
  const thrown = { code: "CANCELLED", data: { taskId: "task-1" }, cause: { message: "enough" } };
  await expect(result).rejects.toMatchObject(thrown);
  expect(performance.now() - aborted).toBeLessThan(1_000);
  await vi.waitFor(() => expect(count(server, "tasks/cancel")).toBe(1));
  expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
  await tasks.close();
});

test("an abort that only detaches leaves the task alone", async () => {
  await using server = await fakeServer(polled([says(working())], { pollIntervalMs: 60_000 }));
  const tasks = await connected(server);
  const controller = new AbortController();
  const run = await tasks.start({ name: "x" }, { signal: controller.signal, onAbort: "detach" });
  const result = run.result();
  controller.abort();
  await expect(result).rejects.toMatchObject({ code: "DETACHED", data: { taskId: "task-1" } });
  expect(await Array.fromAsync(run)).toHaveLength(1);
  const other = await tasks.start({ name: "x" });
  other.detach();
  await expect(other.result()).rejects.toMatchObject({ code: "DETACHED" });
  expect(count(server, "tasks/cancel")).toBe(0);
  await tasks.close();
});

test("an aborted signal sends nothing, and one that aborts during the call closes its stream", async () => {
  const closed = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  await using server = await fakeServer((_, reply) => {
    reply.raw.on("close", () => closed.resolve());
    arrived.resolve();
  });
  const tasks = await connected(server);
  await expect(tasks.callTool({ name: "x" }, { signal: AbortSignal.abort() })).rejects.toMatchObject({
    code: "CANCELLED",
  });
  expect(count(server, "tools/call")).toBe(0);
  const controller = new AbortController();
  const result = tasks.callTool({ name: "x" }, { signal: controller.signal });
  result.catch(() => {});
  await arrived.promise;
  controller.abort();
  await expect(result).rejects.toMatchObject({ code: "CANCELLED" });
  await closed.promise;
  await tasks.close();
});

test("after cancel the run is CANCELLED once, whatever a late poll says", async () => {
  const { promise: polling, resolve } = Promise.withResolvers<Reply>();
  await using server = await fakeServer(polled([resolve]));
  const tasks = await connected(server);
  const updates: string[] = [];
  const run = await tasks.start({ name: "x" }, { onUpdate: ({ status }) => updates.push(status) });
  const result = run.result();
  result.catch(() => {});
  const reply = await polling;
  await run.cancel();
  if (!reply.raw.destroyed) reply.result(completed());
  await expect(result).rejects.toMatchObject({ code: "CANCELLED", data: { taskId: "task-1" } });
  await run.cancel();
  expect(updates).toEqual(["working"]);
  expect([count(server, "tasks/cancel"), count(server, "tasks/get")]).toEqual([1, 1]);
  expect(server.seen.map(({ method }) => method)).not.toContain("notifications/cancelled");
  await tasks.close();
});

test("a task that was cancelled by somebody else is CANCELLED, with its last snapshot", async () => {
  await using server = await fakeServer(polled([says(cancelled())]));
  const tasks = await connected(server);
  const run = await tasks.start({ name: "x" });
  expect((await Array.fromAsync(run)).map(({ status }) => status)).toEqual(["working", "cancelled"]);
  await expect(run.result()).rejects.toMatchObject({ code: "CANCELLED" });
  await tasks.close();
});

test("cancelling is tried again when the server can't be reached, and an unknown task is TASK_NOT_FOUND", async () => {
  let tries = 0;
  await using server = await fakeServer(({ params }, reply) => {
    if (params.taskId === "gone") reply.error(-32602, "No such task");
    else if ((tries += 1) < 3) reply.reset();
    else reply.result(ack);
  });
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const cancelling = tasks.cancel("task-1");
  await clock.pass();
  await clock.pass();
  await cancelling;
  expect(tries).toBe(3);
  await expect(tasks.cancel("gone")).rejects.toMatchObject({ code: "TASK_NOT_FOUND", data: { taskId: "gone" } });
  await tasks.close();
});

test("each change is shown once, and a slow reader gets the newest", async () => {
  const step = (statusMessage: string) => says(working({ statusMessage, lastUpdatedAt: "2026-08-02T00:00:00.000Z" }));
  await using server = await fakeServer(
    polled([step("one"), step("one"), step("one"), step("two"), step("three"), says(completed())]),
  );
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const updates: (string | undefined)[] = [];
  const run = await tasks.start({ name: "x" }, { onUpdate: (task) => updates.push(task.statusMessage ?? task.status) });
  const slow = run[Symbol.asyncIterator]();
  expect((await slow.next()).value).toMatchObject({ status: "working" });
  for (let polls = 0; polls < 6; polls += 1) await clock.pass();
  await run.result();
  expect(updates).toEqual(["working", "one", "two", "three", "completed"]);
  expect((await slow.next()).value).toMatchObject({ status: "completed" });
  expect(await slow.next()).toMatchObject({ done: true });
  await tasks.close();
});

test("iterating throws what ends the waiting without a final state, and a failed task ends it quietly", async () => {
  await using gone = await fakeServer(polled([(reply) => reply.error(-32602, "not found")]));
  const first = await connected(gone);
  await expect(Array.fromAsync(first.resume("task-1"))).rejects.toMatchObject({ code: "TASK_NOT_FOUND" });
  await first.close();
  await using broken = await fakeServer(polled([says(failed({ code: -1, message: "x" }))]));
  const second = await connected(broken);
  const seen = await Array.fromAsync(second.resume("task-1"));
  expect(seen).toMatchObject([{ status: "failed", error: { code: -1, message: "x" } }]);
  await second.close();
});

test("an onUpdate that throws is reported and disturbs nothing", async () => {
  await using server = await fakeServer(polled([says(completed())]));
  const errors: unknown[] = [];
  const tasks = await connected(server, { onError: (error) => errors.push(error) });
  const onUpdate = () => {
    throw new Error("mine");
  };
  expect(await tasks.callTool({ name: "x" }, { onUpdate })).toEqual(text("done"));
  expect(errors).toHaveLength(2);
  await tasks.close();
});

test("a task that is over or asks at once is read without waiting for the interval", async () => {
  const seed = { status: "completed", pollIntervalMs: 60_000 };
  await using server = await fakeServer(polled([says(completed("fast"))], seed));
  const tasks = await connected(server);
  expect(await tasks.callTool({ name: "x" })).toEqual(text("fast"));
  await tasks.close();
  await using asks = await fakeServer(
    polled([says(asking({ who: form("Who?") })), says(completed("asked"))], { status: "input_required" }),
  );
  const answering = await connected(asks, { input: { elicit: () => ({ action: "decline" }) } });
  expect(await answering.callTool({ name: "x" })).toEqual(text("asked"));
  await answering.close();
});

test("five thousand polls with one signal leave nothing behind and warn of nothing", async () => {
  let polls = 0;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") return reply.result(created());
    reply.result((polls += 1) < 5_000 ? working() : completed());
  });
  const warnings: Error[] = [];
  const warn = (warning: Error) => warnings.push(warning);
  process.on("warning", warn);
  // Poll intervals pass at once; every other time is the machine's.
  const hasty = {
    now: () => Date.now(),
    after: (ms: number, fn: () => void) => systemClock.after(ms < 2_000 ? 0 : ms, fn),
  };
  const tasks = await connected(server, { clock: hasty });
  const controller = new AbortController();
  let most = 0;
  const onUpdate = () => (most = Math.max(most, getEventListeners(controller.signal, "abort").length));
  await tasks.callTool({ name: "x" }, { signal: controller.signal, onUpdate });
  expect(polls).toBe(5_000);
  expect(most).toBe(1);
  expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
  expect(warnings).toEqual([]);
  process.off("warning", warn);
  await tasks.close();
}, 60_000);

test("a run that nobody follows sends nothing and raises no unhandled rejection", async () => {
  await using server = await fakeServer(polled([says(failed({ code: -1, message: "x" }))]));
  const tasks = await connected(server);
  await tasks.start({ name: "x" });
  const followed = await tasks.start({ name: "x" }, { onUpdate: () => {} });
  await Array.fromAsync(followed);
  await once(setImmediateTarget(), "now");
  expect(count(server, "tasks/get")).toBe(1);
  await tasks.close();
});

/** An event that comes after all promises of this turn: unhandled rejections have been raised by then. */
function setImmediateTarget(): EventTarget {
  const target = new EventTarget();
  setImmediate(() => target.dispatchEvent(new Event("now")));
  return target;
}

test("closing the client detaches from its tasks, and a connection that was closed is not waited for", async () => {
  await using server = await fakeServer(polled([says(working())]));
  const tasks = await connected(server);
  const run = await tasks.start({ name: "x" });
  const result = run.result();
  await tasks.close();
  await expect(result).rejects.toMatchObject({ code: "DETACHED", data: { taskId: "task-1" } });
  await expect(tasks.resume("task-1").result()).rejects.toMatchObject({
    code: "CONNECTION_LOST",
    data: { taskId: "task-1" },
  });
});
