import { setImmediate } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { TaskError } from "../../src/errors.ts";
import { tasksExtension } from "../../src/protocol/capabilities.ts";
import { stateLifeMs } from "../../src/server/seal.ts";
import { serve } from "../../src/server/http.ts";
import { manualClock } from "../../src/store/contract/manual-clock.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { Claim, TaskStore } from "../../src/store/store.ts";
import {
  authenticate,
  completed,
  declared,
  eventually,
  events,
  factory,
  open,
  question,
  type Answer,
  type SendOptions,
  type Served,
} from "./harness.ts";

/** 2026-07-28 without the extension; forms can be asked. */
const asking = { capabilities: { elicitation: { form: {} } } };
/** The same, and nothing can be asked. */
const mute = { capabilities: {} };
const call = { name: "optional", arguments: { text: "x", count: 2 } };
const holdMs = 25_000;

/** A server whose time is the test's. `timers` says how many were set, `reads` how often a single task was read. */
async function opened(options: Parameters<typeof open>[0] = {}) {
  const manual = manualClock();
  let timers = 0;
  const clock = { ...manual, after: (ms: number, fn: () => void) => ((timers += 1), manual.after(ms, fn)) };
  const { store, reads } = counting(sqlite(":memory:", { clock: manual }));
  const served = await open(options, { clock, store }, { grace: 200, hold: holdMs });
  return { ...served, clock, reads, timers: () => timers };
}

type Opened = Awaited<ReturnType<typeof opened>>;

/** The store itself; what is read of single tasks is counted. */
function counting(store: TaskStore) {
  let reads = 0;
  const get: TaskStore["get"] = (...args) => {
    reads += 1;
    return store.get(...args);
  };
  return { store: { ...store, get }, reads: () => reads };
}

const claimed = (served: Served): Promise<Claim> => eventually(() => served.claim().catch(() => undefined));

/** Makes a call, and moves the clock on until it is answered. */
async function outwait(served: Opened, params: object, options?: SendOptions): Promise<Answer> {
  const before = served.timers();
  let there = false;
  const answer = served.call("tools/call", params, options).finally(() => (there = true));
  await eventually(() => served.timers() > before);
  await eventually(() => {
    if (!there) served.clock.advance(5_000);
    return there;
  });
  return await answer;
}

const park = (served: Served, claim: Claim, ...keys: string[]) =>
  served.engine.attempts.park(
    claim,
    { inputs: keys.map((key) => ({ key, request: question(`${key}?`) })), events: [], timers: [] },
    false,
  );

const round = ({ body }: Answer) => {
  expect(body.result?.resultType).toBe("input_required");
  expect(body.result?.requestState).toMatch(/^[\w-]{40,}$/);
  return body.result as { inputRequests?: Record<string, unknown>; requestState: string };
};

const refused = { code: -32602, message: new TaskError("STATE_REFUSED").message };

describe("a client that declared the extension", () => {
  test("gets the plain result of what ends within the grace", async () => {
    await using served = await opened();
    const answer = served.call("tools/call", call);
    await served.finish(await claimed(served), completed("quick"));
    const { body } = await answer;
    expect(body.result).toMatchObject({ resultType: "complete", content: [{ text: "quick" }] });
    expect(body.result).not.toHaveProperty("taskId");
  });

  test("gets the error of what fails within the grace", async () => {
    await using served = await opened();
    const answer = served.call("tools/call", call);
    const error = { code: -32050, message: "It broke." };
    const outcome = { status: "failed" as const, error: JSON.stringify(error), statusMessage: "It broke." };
    await served.finish(await claimed(served), outcome);
    expect((await answer).body.error).toEqual(error);
  });

  test("gets what ends within the grace however short its tool is kept, and though reading it takes its time", async () => {
    const clock = manualClock();
    const store = sqlite(":memory:", { clock });
    const get: TaskStore["get"] = (...args) => {
      clock.advance(20);
      return store.get(...args);
    };
    await using served = await open({}, { clock, store: { ...store, get } }, { grace: 200 });
    const answer = served.call("tools/call", { name: "brief" });
    await served.finish(await claimed(served), completed("quick"));
    expect((await answer).body.result).toMatchObject({ resultType: "complete", content: [{ text: "quick" }] });
  });

  test("gets the task when the grace is over, or the task asks", async () => {
    await using served = await opened();
    expect((await outwait(served, call)).body.result).toMatchObject({ resultType: "task", status: "working" });
    await claimed(served);
    const asks = served.call("tools/call", { name: "typed" });
    await park(served, await claimed(served), "ok");
    expect((await asks).body.result).toMatchObject({ resultType: "task", status: "input_required" });
  });

  test("gets the task of a tool that is always one at once", async () => {
    await using served = await opened();
    const { body } = await served.call("tools/call", { name: "required" });
    expect(body.result).toMatchObject({ resultType: "task", status: "working" });
  });

  test("is not looked after while it waits: no read, and one timer for each call", async () => {
    const clock = manualClock();
    let timers = 0;
    const counted = { ...clock, after: (ms: number, fn: () => void) => ((timers += 1), clock.after(ms, fn)) };
    const { store, reads } = counting(sqlite(":memory:", { clock }));
    await using served = await open({}, { clock: counted, store }, { grace: 200 });
    const calls = Array.from({ length: 20 }, (_, id) => served.call("tools/call", call, { id }));
    await eventually(() => timers === 20);
    clock.advance(200);
    for (const answer of calls) expect((await answer).body.result?.resultType).toBe("task");
    expect({ reads: reads(), timers }).toEqual({ reads: 0, timers: 20 });
  });
});

describe("a client without the extension", () => {
  test("is asked to come back when the hold is over, and the next hold continues the same task", async () => {
    await using served = await opened();
    const { requestState, inputRequests } = round(await outwait(served, call, mute));
    const claim = await claimed(served);
    expect(inputRequests).toBeUndefined();
    const second = served.call("tools/call", { ...call, requestState }, mute);
    await served.finish(claim, completed("done"));
    expect((await second).body.result).toMatchObject({ resultType: "complete", content: [{ text: "done" }] });
    await expect(served.claim()).rejects.toThrow("Nothing to claim");
  });

  test("gets at once what ended before the store said that it has the task", async () => {
    const store = sqlite(":memory:");
    const create: TaskStore["create"] = async (...args) => {
      const task = await store.create(...args);
      await served.finish(await served.claim(), completed("quick"));
      await setImmediate();
      return task;
    };
    // Nothing moves this clock: who has missed the end looks again in five seconds, which never come.
    await using served = await open({}, { store: { ...store, create }, clock: manualClock() }, { hold: holdMs });
    const answer = await served.call("tools/call", call, mute);
    expect(answer.body.result).toMatchObject({ content: [{ text: "quick" }] });
  });

  test("is held no longer because the server's clock was set back", async () => {
    const time = manualClock();
    let backMs = 0;
    const clock = { now: () => time.now() - backMs, after: time.after };
    await using served = await open({}, { clock }, { hold: holdMs });
    let there = false;
    const answer = served.call("tools/call", call, mute).finally(() => (there = true));
    await eventually(async () => (await served.tasks()).length > 0);
    backMs = 3_600_000;
    const until = time.now() + backMs / 3;
    await eventually(() => {
      time.advance(1_000);
      return there || time.now() > until;
    });
    expect(there).toBe(true);
    round(await answer);
  });

  test("is asked what the task asks, and its answers go into the same task", async () => {
    await using served = await opened();
    const first = served.call("tools/call", call, asking);
    await park(served, await claimed(served), "sure", "really");
    const { requestState, inputRequests } = round(await first);
    expect(inputRequests).toEqual({ sure: question("sure?"), really: question("really?") });

    const bad = { action: "accept", content: { ok: "perhaps" } };
    const good = { action: "accept", content: { ok: true } };
    const second = await served.call(
      "tools/call",
      { ...call, requestState, inputResponses: { sure: good, really: bad, other: good } },
      asking,
    );
    const again = round(second);
    expect(again.inputRequests).toMatchObject({
      really: { params: { message: expect.stringMatching(/^really\? \(/) } },
    });
    expect(Object.keys(again.inputRequests!)).toEqual(["really"]);

    const third = served.call(
      "tools/call",
      { ...call, requestState: again.requestState, inputResponses: { really: good } },
      asking,
    );
    const resumed = await claimed(served);
    expect(resumed.journal.inputs).toMatchObject({ sure: { response: good }, really: { response: good } });
    await served.finish(resumed, completed("done"));
    expect((await third).body.result).toMatchObject({ content: [{ text: "done" }] });
  });

  test("after eight rounds gets a handle in plain words, which names the task and when to look again", async () => {
    await using served = await opened();
    let requestState: string | undefined;
    for (let n = 1; n <= 8; n++) {
      const again = requestState === undefined ? call : { ...call, requestState };
      ({ requestState } = round(await outwait(served, again, mute)));
    }
    const last = await outwait(served, { ...call, requestState }, mute);
    const [task] = await served.tasks();
    expect(last.body.result).toMatchObject({
      resultType: "complete",
      content: [{ type: "text", text: expect.stringContaining(task!.id) }],
      structuredContent: { taskId: task!.id, status: "working", pollIntervalMs: expect.any(Number) },
    });
    expect(last.body.result).not.toHaveProperty("isError");
    expect(task).toMatchObject({ status: "working", cancelRequested: false });
  });

  test("that can't be asked what the task asks gets a handle, and the question stays open for others", async () => {
    await using served = await opened();
    const answer = served.call("tools/call", call, mute);
    const claim = await claimed(served);
    await park(served, claim, "sure");
    const { body } = await answer;
    expect(body.result).not.toHaveProperty("inputRequests");
    expect(body.result).toMatchObject({ structuredContent: { taskId: claim.taskId, status: "input_required" } });
    expect(await served.engine.read(claim.taskId, "")).toMatchObject({ status: "input_required" });
  });

  test("keeps the questions that came before the task in its state, where nobody can read or change them", async () => {
    await using served = await opened();
    const answers = { "before:name": { action: "accept", content: { name: "Ada Lovelace" } } };
    const asksFirst = { name: "asks_first", arguments: {} };
    const first = round(await served.call("tools/call", { ...asksFirst, inputResponses: answers }));
    expect(Object.keys(first.inputRequests!)).toEqual(["before:size"]);
    expect(Buffer.from(first.requestState, "base64url").toString("latin1")).not.toContain("Lovelace");
    const inputResponses = { "before:size": { action: "accept", content: {} } };
    const { body } = await served.call("tools/call", {
      ...asksFirst,
      requestState: first.requestState,
      inputResponses,
    });
    expect(body.result?.resultType).toBe("task");
    expect(JSON.parse((await served.claim()).answers)).toEqual({ name: { name: "Ada Lovelace" }, size: { size: 3 } });
  });

  test("sees no output schema of a tool that may answer with a handle; one that declared the extension does", async () => {
    await using served = await opened();
    const schemaOf = async (options: SendOptions) => {
      const { body } = await served.call("tools/list", {}, options);
      return body.result!.tools.find(({ name }: { name: string }) => name === "typed").outputSchema;
    };
    expect(await schemaOf(mute)).toBeUndefined();
    expect(await schemaOf({ capabilities: declared })).toMatchObject({ type: "object" });
  });

  test("may declare it between two rounds: then it gets the task", async () => {
    await using served = await opened();
    const { requestState } = round(await outwait(served, call, mute));
    const { body } = await outwait(served, { ...call, requestState }, { capabilities: declared });
    const [task, ...others] = await served.tasks();
    expect(body.result).toMatchObject({ resultType: "task", taskId: task!.id });
    expect(others).toEqual([]);
  });

  test("hears of progress every few seconds, and of news at once, each time with a higher number", async () => {
    await using served = await opened();
    const response = served.send("tools/call", { ...call, _meta: { progressToken: "p" } }, mute);
    const claim = await claimed(served);
    await eventually(() => served.timers() === 1);
    served.clock.advance(5_000);
    const stream = events(await response);
    expect(await stream.next()).toMatchObject({
      method: "notifications/progress",
      params: { progressToken: "p", progress: 5, message: "Working" },
    });
    served.clock.advance(1_000);
    await served.engine.attempts.setStatus(claim, "Uploading", { progress: 2, total: 7 });
    expect(await stream.next()).toMatchObject({ params: { progress: 6, message: "Uploading (2 of 7)" } });
    // Too soon after the last one: it waits for the next look.
    await served.engine.attempts.setStatus(claim, "Checking", { progress: 3, total: 7 });
    served.clock.advance(5_000);
    expect(await stream.next()).toMatchObject({ params: { progress: 11, message: "Checking (3 of 7)" } });
    await served.finish(claim, completed("done"));
    expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
    expect(await stream.next()).toBeUndefined();
  });

  test("hears nothing that it did not ask for", async () => {
    await using served = await opened();
    const response = served.send("tools/call", call, mute);
    const claim = await claimed(served);
    await eventually(() => served.timers() === 1);
    served.clock.advance(5_000);
    await served.finish(claim, completed("done"));
    expect((await response).headers.get("content-type")).toMatch("application/json");
  });
});

describe("the state that a client carries", () => {
  test("leads to the same task on another replica, with another process's server", async () => {
    await using served = await opened();
    const { requestState } = round(await outwait(served, call, mute));
    const other = serve(served.parts, factory);
    await using _closing = { [Symbol.asyncDispose]: () => other.close() };
    const { url } = await other.listen();
    const second = served.call("tools/call", { ...call, requestState }, { ...mute, url });
    await served.finish(await claimed(served), completed("done"));
    expect((await second).body.result).toMatchObject({ content: [{ text: "done" }] });
  });

  test("that is sent again changes nothing, and gives the same answer: replies get lost", async () => {
    await using served = await opened();
    const first = served.call("tools/call", call, asking);
    await park(served, await claimed(served), "sure");
    const { requestState } = round(await first);
    const yes = { ...call, requestState, inputResponses: { sure: { action: "accept", content: { ok: true } } } };
    const no = { ...yes, inputResponses: { sure: { action: "decline" } } };
    const calls = [yes, no, yes].map((again, id) => served.call("tools/call", again, { ...asking, id }));
    const resumed = await claimed(served);
    await served.finish(resumed, completed("done"));
    for (const answer of calls) expect((await answer).body.result).toMatchObject({ content: [{ text: "done" }] });
    expect(await served.tasks()).toHaveLength(1);
    expect((await served.call("tools/call", no, asking)).body.result).toMatchObject({ content: [{ text: "done" }] });
  });

  test("of a call whose questions are all answered starts one task, however often it comes", async () => {
    await using served = await opened();
    const asksFirst = { name: "asks_first", arguments: {} };
    const { requestState } = round(await served.call("tools/call", asksFirst));
    const inputResponses = {
      "before:name": { action: "accept", content: { name: "Ada" } },
      "before:size": { action: "accept", content: {} },
    };
    const again = { ...asksFirst, requestState, inputResponses };
    const answers = await Promise.all([1, 2, 3].map((id) => served.call("tools/call", again, { id })));
    answers.push(await served.call("tools/call", again));
    const [task, ...others] = await served.tasks();
    expect(answers.map(({ body }) => body.result?.taskId)).toEqual(Array(4).fill(task!.id));
    expect(others).toEqual([]);
    expect(served.errors).toEqual([]);
  });

  test("is the same call's whatever the order of its arguments", async () => {
    await using served = await opened();
    const { requestState } = round(await outwait(served, call, mute));
    const turned = { name: call.name, arguments: { count: 2, text: "x" } };
    round(await outwait(served, { ...turned, requestState }, mute));
    expect(await served.tasks()).toHaveLength(1);
  });

  test("is refused when it is forged, cut, another call's or another owner's, always in the same words", async () => {
    await using served = await opened({ authenticate });
    const ada = { ...mute, token: "ada" };
    const { requestState } = round(await outwait(served, call, ada));
    const bytes = Buffer.from(requestState, "base64url");
    const flipped = [0, 1, 20, bytes.length - 1].map((at) => {
      const copy = Buffer.from(bytes);
      copy[at]! ^= 1;
      return copy.toString("base64url");
    });
    const forged = [...flipped, "", "x", requestState.slice(0, -4), `${requestState} `, `${requestState}AA`];
    const cases: [object, SendOptions][] = [
      ...forged.map((text): [object, SendOptions] => [{ ...call, requestState: text }, ada]),
      [
        { ...call, requestState },
        { ...mute, token: "bob" },
      ],
      [{ name: "typed", arguments: call.arguments, requestState }, ada],
      [{ name: "optional", arguments: { text: "y", count: 2 }, requestState }, ada],
      [{ name: "optional", arguments: { text: "x" }, requestState }, ada],
    ];
    for (const [params, options] of cases) {
      const { status, body } = await served.call("tools/call", params, options);
      expect({ status, error: body.error }).toEqual({ status: 200, error: refused });
    }
    expect(await served.tasks()).toHaveLength(1);
    expect(served.errors).toEqual([]);
  });

  test("is refused when it has expired, or was sealed with another key", async () => {
    await using served = await opened();
    await using other = await opened();
    const { requestState } = round(await outwait(served, call, mute));
    const foreign = await other.call("tools/call", { ...call, requestState }, mute);
    expect(foreign.body.error).toEqual(refused);
    served.clock.advance(stateLifeMs);
    expect((await served.call("tools/call", { ...call, requestState }, mute)).body.error).toEqual(refused);
  });

  test("of a task that is gone says so, and starts nothing", async () => {
    await using served = await opened();
    const { requestState } = round(await outwait(served, { name: "brief" }, mute));
    const claim = await claimed(served);
    await served.finish(claim, completed("done"));
    served.clock.advance(3_600_000);
    const { body } = await served.call("tools/call", { name: "brief", requestState }, mute);
    expect(body.error).toMatchObject({ code: -32602, message: new TaskError("TASK_EXPIRED").message });
    await expect(served.claim()).rejects.toThrow("Nothing to claim");
  });
});

describe("what a task asks of a client that did not declare it", () => {
  const knowing = { capabilities: { extensions: { [tasksExtension]: {} } } };

  test("is not shown by tasks/get or the task itself, which then are working, and say why", async () => {
    await using served = await opened();
    const taskId = await served.create();
    await park(served, await served.claim(), "sure");
    const { body } = await served.call("tasks/get", { taskId }, knowing);
    expect(body.result).toMatchObject({ status: "working", statusMessage: expect.stringContaining("did not declare") });
    expect(body.result).not.toHaveProperty("inputRequests");
    // Another door: a client of the same owner that declared it.
    const shown = await served.call("tasks/get", { taskId });
    expect(shown.body.result).toMatchObject({ status: "input_required", inputRequests: { sure: question("sure?") } });
  });

  test("is not sent by a subscription either", async () => {
    await using served = await opened();
    const taskId = await served.create();
    await park(served, await served.claim(), "sure");
    const response = await served.send("subscriptions/listen", { notifications: { taskIds: [taskId] } }, knowing);
    const stream = events(response);
    await stream.next();
    const { params } = await stream.next();
    expect(params).toMatchObject({ taskId, status: "working" });
    expect(params).not.toHaveProperty("inputRequests");
    await stream.cancel();
  });

  test("is shown as far as the client declared it", async () => {
    await using served = await opened();
    const taskId = await served.create();
    const inputs = [
      { key: "sure", request: question("sure?") },
      { key: "roots", request: { method: "roots/list" as const } },
    ];
    await served.engine.attempts.park(await served.claim(), { inputs, events: [], timers: [] }, false);
    const { body } = await served.call("tasks/get", { taskId });
    expect(body.result).toMatchObject({ status: "input_required", inputRequests: { sure: question("sure?") } });
    expect(Object.keys(body.result!.inputRequests)).toEqual(["sure"]);
  });
});
