import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { TaskError } from "../../src/errors.ts";
import { noCapabilities } from "../../src/protocol/capabilities.ts";
import { manualClock } from "../../src/store/contract/manual-clock.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { gather, questionsOf } from "../../src/server/before.ts";
import { newTaskOf, taskTool } from "../../src/tool.ts";
import { createEngine } from "../../src/engine/engine.ts";
import { wokenBy } from "../../src/engine/stops.ts";
import { authenticate, completed, eventually, open, parameters, declared, question, tools } from "./harness.ts";

/** JSON that `JSON.parse` takes and `JSON.stringify` does not. */
const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;

async function post(url: string, method: string, name: string, body: string, more = {}) {
  const headers = {
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    ...{ "mcp-method": method, "mcp-name": name, ...more },
  };
  const response = await fetch(url, { method: "POST", headers, body });
  return { status: response.status, body: (await response.json()) as { error?: { code: number; message: string } } };
}

describe("JSON that is nested too deeply", () => {
  test("arguments are the caller's fault", async () => {
    await using served = await open();
    const params = JSON.stringify(parameters({ name: "optional", arguments: { text: "x", extra: "DEEP" } }, declared));
    const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params.replace('"DEEP"', deep)}}`;
    const answer = await post(served.listening.url, "tools/call", "optional", body);
    expect(answer.body.error).toMatchObject({ code: -32602 });
    expect(served.errors).toEqual([]);
  });

  test("so are arguments that can be written, but take more of the stack to be told apart", async () => {
    await using served = await open({ authenticate }, {}, { hold: 0 });
    const params = JSON.stringify(parameters({ name: "optional", arguments: { text: "x", extra: "DEEP" } }, {}));
    for (const depth of [1_500, 2_500, 3_000, 3_500, 4_000, 4_500]) {
      const text = params.replace('"DEEP"', "[".repeat(depth) + "]".repeat(depth));
      const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${text}}`;
      const answer = await post(served.listening.url, "tools/call", "optional", body, { authorization: "Bearer ada" });
      expect(answer.body.error).toMatchObject({ code: -32602 });
    }
    expect(served.errors).toEqual([]);
  });

  test.each([
    ["lists", "[", "]"],
    ["objects", '{"b":1,"a":', "}"],
  ])("%s in almost a thousand levels are not too deep", async (_, begin, end) => {
    await using served = await open({ authenticate }, {}, { hold: 0 });
    const params = JSON.stringify(parameters({ name: "optional", arguments: { text: "x", extra: "DEEP" } }, {}));
    const text = params.replace('"DEEP"', `${begin.repeat(990)}1${end.repeat(990)}`);
    const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${text}}`;
    const answer = await post(served.listening.url, "tools/call", "optional", body, { authorization: "Bearer ada" });
    expect(answer.body).toMatchObject({ result: { resultType: "input_required" } });
  });

  test("an answer is not taken, and its request stays open", async () => {
    await using served = await open();
    const taskId = await served.create();
    await served.engine.attempts.park(
      await served.claim(),
      { inputs: [{ key: "ask", request: question("?") }], events: [], timers: [] },
      false,
    );
    const answer = { ask: { action: "accept", content: { ok: true }, extra: "DEEP" } };
    const params = JSON.stringify(parameters({ taskId, inputResponses: answer }, declared));
    const body = `{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":${params.replace('"DEEP"', deep)}}`;
    const { body: told } = await post(served.listening.url, "tasks/update", taskId, body);
    expect(served.errors).toEqual([]);
    expect(told).toMatchObject({ result: { resultType: "complete" } });
    expect((await served.call("tasks/get", { taskId })).body.result).toMatchObject({
      status: "input_required",
      statusMessage: expect.stringContaining("was not taken"),
    });
  });
});

test("questions before a task can be called anything", async () => {
  const tool = taskTool({
    name: "odd",
    before: { constructor: { message: "Who?", schema: z.object({}) } },
    run: () => ({ content: [] }),
  });
  expect(await gather(questionsOf(tool), {}, {})).toMatchObject({
    kind: "asking",
    requests: { "before:constructor": { params: { message: "Who?" } } },
  });
});

test("a held call outlasts a store that is away for a moment", async () => {
  const store = sqlite(":memory:");
  let refused = 0;
  let away = false;
  const get: typeof store.get = (...args) => {
    if (!away) return store.get(...args);
    refused += 1;
    return Promise.reject(new TaskError("STORE_BUSY"));
  };
  await using served = await open({}, { store: { ...store, get } });
  const call = served.call("tools/call", { name: "optional", arguments: { text: "x" } }, { capabilities: {} });
  const claim = await eventually(() => served.claim().catch(() => false as const));
  away = true;
  await served.engine.attempts.setStatus(claim, "still at it", null);
  await eventually(() => refused > 0);
  away = false;
  await served.finish(claim, completed("done"));
  expect((await call).body.result).toMatchObject({ content: [{ text: "done" }] });
});

test("who waits for a task learns of its end although every hint is lost", async () => {
  const clock = manualClock();
  await using store = sqlite(":memory:", { clock });
  await using engine = createEngine({ store: { ...store, watch: () => () => {} }, clock });
  const tool = tools[0]!;
  const made = { client: noCapabilities, owner: "", args: "{}", answers: "{}", auth: "null" };
  const { id } = await engine.create({ ...newTaskOf(tool), ...made });
  const settled = engine.settled(id, "", new AbortController().signal);
  const known = [{ name: tool.name, version: "", limit: null }];
  const request = { worker: "w", tools: known, queues: ["default"], ownerLimit: null, count: 1, leaseMs: 60_000 };
  const [claim] = await store.claim(request);
  await store.finish(claim!, completed("done"));
  clock.advance(10_000);
  expect(await settled).toMatchObject({ status: "completed" });
});

test("a wait that is over is kept by none of the signals that could have ended it", async () => {
  await using served = await open();
  const made = { client: noCapabilities, owner: "", args: "{}", answers: "{}", auth: "null" };
  const { signal: stop } = new AbortController();
  const { signal } = new AbortController();
  const keepers = () => [wokenBy(stop).size, getEventListeners(signal, "abort").length];
  const kept: number[][] = [];
  const seen = () => kept.push(keepers()) > 0;
  await served.engine.create({ ...newTaskOf(tools[0]!), ...made }, { forMs: 60_000, signal, stop, seen });
  expect([...kept, keepers()]).toEqual([
    [1, 1],
    [0, 0],
  ]);
});

test.each([{ maxBodyBytes: Number.NaN }, { maxStreams: -1 }, { maxTaskIds: Number.NaN }, { keepAliveMs: -5 }])(
  "a limit that is no whole number is refused at once: %o",
  async (options) => {
    await expect(open(options)).rejects.toMatchObject({ code: "MISUSE" });
  },
);
