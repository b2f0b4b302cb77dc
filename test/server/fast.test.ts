import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SERVER_INFO_META_KEY } from "@modelcontextprotocol/server";
import { newTaskId } from "../../src/protocol/ids.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { authenticate, completed, declared, open, parameters, question, type Served } from "./harness.ts";
import { change, changed, of } from "./drafts.ts";
import { json, send, type Sent } from "./paths.ts";

/** One server, and a task in each state. Whoever has the token "ada" owns them. */
let served: Served;
let ids: readonly string[];

beforeAll(async () => {
  served = await open({ authenticate, pollLimit: null }, { pollMs: 1_000 });
  ids = await tasksInEachState(served);
});
afterAll(() => served[Symbol.asyncDispose]());

async function tasksInEachState({ create, claim, engine, finish }: Served): Promise<string[]> {
  const begun = async () => {
    const id = await create("required", {}, { token: "ada" });
    const claimed = await claim();
    expect(claimed.taskId).toBe(id);
    return claimed;
  };
  const working = await begun();
  await engine.attempts.setStatus(working, "half way", { progress: 1, total: 2 });
  const asking = await begun();
  const inputs = ["one", "__proto__"].map((key) => ({ key, request: question(key) }));
  await engine.attempts.park(asking, { inputs, events: [], timers: [] }, false);
  const done = await begun();
  await finish(done, completed("done", { structuredContent: { a: [1, "\u2028", { __proto: null }] } }));
  const failed = await begun();
  const error = JSON.stringify({ code: -32_603, message: "no luck", data: { why: ["x"] } });
  await finish(failed, { status: "failed", error, statusMessage: "no luck" });
  const cancelled = await begun();
  await finish(cancelled, { status: "cancelled", statusMessage: null });
  return [working, asking, done, failed, cancelled].map(({ taskId }) => taskId);
}

const both = async (sent: Sent, of = served) => {
  const ours = await send(of.listening.port, sent, true);
  const stock = await send(of.listening.port, sent, false);
  return { ours, stock };
};

const usual = (method: string, params: Record<string, unknown>, more: object = {}): Sent => ({
  headers: [
    ["accept", "application/json, text/event-stream"],
    ["content-type", "application/json"],
    ["mcp-protocol-version", "2026-07-28"],
    ["mcp-method", method],
    ["mcp-name", String(params.taskId)],
    ["authorization", "Bearer ada"],
  ],
  body: JSON.stringify({ jsonrpc: "2.0", id: 7, method, params: parameters(params, declared), ...more }),
});

test("each state, and each method, is answered alike by both ways, and only one asks the factory", async () => {
  await both(usual("tasks/get", { taskId: ids[0] }));
  for (const taskId of [...ids, newTaskId(), "no id of ours"]) {
    for (const [method, more] of [
      ["tasks/get", {}],
      ["tasks/update", { inputResponses: { one: { action: "nonsense" } } }],
      ["tasks/update", {}],
    ] as const) {
      const before = served.made();
      const ours = await send(served.listening.port, usual(method, { taskId, ...more }), true);
      const between = served.made();
      const stock = await send(served.listening.port, usual(method, { taskId, ...more }), false);
      expect(ours).toEqual(stock);
      const isOurs = taskId !== "no id of ours";
      expect([method, taskId, between - before, served.made() - between]).toEqual([method, taskId, isOurs ? 0 : 1, 1]);
    }
  }
});

test("each owner's first answer is the SDK's, and says what the later ones say of the server", async () => {
  await using fresh = await open({ authenticate });
  for (const token of ["ada", "bob"]) {
    const taskId = await fresh.create("required", {}, { token });
    const asked = usual("tasks/get", { taskId });
    const headers = asked.headers.map(([name, value]) => [name, value.replace("ada", token)] as const);
    const answers = [];
    for (let n = 0; n < 3; n++) answers.push(await send(fresh.listening.port, { ...asked, headers }, true));
    expect(fresh.made()).toBe(token === "ada" ? 2 : 4);
    for (const { body } of answers)
      expect(body).toMatchObject({ result: { _meta: { [SERVER_INFO_META_KEY]: { name: "test", version: "1.0.0" } } } });
  }
});

test("a store that fails is answered alike, and reported as often", async () => {
  const store = sqlite(":memory:");
  await using broken = await open({}, { store });
  const taskId = await broken.create();
  await both(usual("tasks/get", { taskId }), broken);
  await store[Symbol.asyncDispose]();
  for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
    broken.errors.length = 0;
    const { ours, stock } = await both(usual(method, { taskId, inputResponses: {} }), broken);
    expect(ours).toEqual(stock);
    expect(ours.body).toMatchObject({ error: { code: -32603 } });
    expect(broken.errors.map(({ code }) => code)).toEqual(["STORE_CLOSED", "STORE_CLOSED"]);
  }
});

test("web-standard requests of a told length are answered the short way, too, and alike", async () => {
  await both(usual("tasks/get", { taskId: ids[0] }));
  for (const taskId of ids) {
    const { headers, body } = usual("tasks/get", { taskId });
    const ask = async (told: boolean) => {
      const length = told ? { "content-length": String(Buffer.byteLength(body)) } : {};
      const all = { ...Object.fromEntries(headers), ...length };
      const answer = await served.handler.fetch(
        new Request("http://x.example/", { method: "POST", headers: all, body }),
      );
      return { status: answer.status, headers: [...answer.headers], body: await answer.json() };
    };
    const before = served.made();
    const ours = await ask(true);
    expect(served.made()).toBe(before);
    expect(ours).toEqual(await ask(false));
    expect(served.made()).toBe(before + 1);
  }
});

test("a body and an auth that something before us has read and checked are taken as they are", async () => {
  const taskId = ids[0];
  const server = createServer((incoming, outgoing) => {
    let text = "";
    incoming.setEncoding("utf8");
    incoming.on("data", (part: string) => (text += part));
    incoming.on("end", () => {
      Object.assign(incoming, { body: json(text), auth: { token: "", clientId: "ada", scopes: [] } });
      served.handler.node(incoming, outgoing);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const sent = { ...usual("tasks/get", { taskId }), path: "/" };
  const headers = sent.headers.map(([name, value]) => [name, value.replace("ada", "outage")] as const);
  const before = served.made();
  const ours = await send(port, { ...sent, headers }, true);
  expect(served.made()).toBe(before);
  expect(ours.body).toMatchObject({ result: { taskId } });
  expect(ours).toEqual(await send(port, { ...sent, headers }, false));
  server.close();
});

test("the author's bound of a body holds on both ways", async () => {
  await using bounded = await open({ maxBodyBytes: 700 });
  const taskId = await bounded.create();
  expect((await bounded.call("tasks/get", { taskId })).status).toBe(200);
  expect((await bounded.call("tasks/get", { taskId })).status).toBe(200);
  expect((await bounded.call("tasks/get", { taskId, more: "x".repeat(700) })).status).toBe(413);
});

test("who authenticates sees the whole request, once, whichever way it takes", async () => {
  const seen: unknown[] = [];
  const gate = async (request: Request) => {
    const { url, method, headers } = request;
    seen.push({
      url,
      method,
      headers: [...headers].filter(([name]) => !unlike.has(name)),
      body: await request.clone().text(),
    });
    return headers.get("authorization") === "Bearer ada" ? undefined : new Response("who?", { status: 401 });
  };
  const unlike = new Set(["content-length", "transfer-encoding"]);
  await using signed = await open({ authenticate: gate });
  const taskId = (await tasksInEachState(signed))[0];
  await send(signed.listening.port, usual("tasks/get", { taskId }), true);
  for (const token of ["ada", "eve"]) {
    const asked = usual("tasks/get", { taskId });
    const headers = asked.headers.map(([name, value]) => [name, value.replace("ada", token)] as const);
    seen.length = 0;
    const ours = await send(signed.listening.port, { ...asked, headers }, true);
    expect(ours.status).toBe(token === "ada" ? 200 : 401);
    expect(seen).toHaveLength(1);
    await send(signed.listening.port, { ...asked, headers }, false);
    expect(seen[0]).toEqual(seen[1]);
  }
});

test("whatever is sent, the two ways answer alike", { timeout: 120_000 }, async () => {
  let ofOurs = 0;
  const start = fc.record({
    method: of("tasks/get", "tasks/get", "tasks/update", "tasks/cancel"),
    which: fc.nat(9),
    changes: fc.array(change, { maxLength: 3 }),
  });
  await fc.assert(
    fc.asyncProperty(start, async ({ method, which, changes }) => {
      const taskId = ids[which] ?? "A".repeat(22);
      const usualOne = usual(method, { taskId, ...(method === "tasks/update" ? { inputResponses: {} } : {}) });
      const sent = changed(usualOne, changes);
      const before = served.made();
      const ours = await send(served.listening.port, sent, true);
      if (ours.status === 200 && served.made() === before) ofOurs += 1;
      expect(ours).toEqual(await send(served.listening.port, sent, false));
    }),
    { numRuns: 400 },
  );
  // A test of what always takes the same way would show nothing.
  expect(ofOurs).toBeGreaterThan(60);
});
