import { expect, test } from "vitest";
import { systemClock } from "../../src/clock.ts";
import { TaskError } from "../../src/errors.ts";
import { serve } from "../../src/server/http.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { authenticate, completed, eventually, factory, open, question, type Json, type Served } from "./harness.ts";
import { everyInput, oldClient, type OldClient } from "./old-client.ts";

/** What becomes of a response to a question of protocol 2025-11-25, when things go wrong. */

const accept = { action: "accept", content: { ok: true } };
const asks = (key: string) => ({ inputs: [{ key, request: question(`${key}?`) }], events: [], timers: [] });
const take = (served: Served) => eventually(() => served.claim().catch(() => undefined));

async function start(client: OldClient, served: Served, key = "sure"): Promise<string> {
  const { result } = await client.call("tools/call", { name: "required", arguments: {}, task: {} });
  await served.engine.attempts.park(await take(served), asks(key), false);
  return result.task.taskId as string;
}

/** A store whose answers wait for what a test says. */
function gated(pass: () => Promise<void>): TaskStore {
  const store = sqlite(":memory:");
  const answer = store.answer.bind(store);
  store.answer = async (...given) => {
    await pass();
    return answer(...given);
  };
  return store;
}

// "Sending Messages to the Server": accepted is what is kept.
test("a response is acknowledged when it is kept, and closing waits for it", async () => {
  const { promise: reached, resolve: reach } = Promise.withResolvers<void>();
  const { promise: gate, resolve: lift } = Promise.withResolvers<void>();
  const store = gated(() => {
    reach();
    return gate;
  });
  await using served = await open({}, { store });
  const client = await oldClient(served.listening.url);
  const taskId = await start(client, served);
  const stream = await client.stream("tasks/result", { taskId });
  let acknowledged = false;
  const status = client.respond(await stream.next(), accept).finally(() => (acknowledged = true));
  await reached;
  // Whatever could go out before has had its time: another whole exchange.
  expect((await client.call("tasks/get", { taskId })).result.status).toBe("input_required");
  expect(acknowledged).toBe(false);
  let closed = false;
  const closing = served.handler.close().finally(() => (closed = true));
  expect(await stream.next()).toMatchObject({ error: { code: -32603 } });
  expect(closed).toBe(false);
  lift();
  expect(await status).toBe(202);
  await closing;
  expect((await served.engine.read(taskId, "")).status).toBe("working");
});

test("a response that the store can't take is refused, and asked for again when the store is back", async () => {
  let down = true;
  const store = gated(async () => {
    if (down) throw new TaskError("STORE_UNAVAILABLE");
  });
  const clock = { ...systemClock, after: (ms: number, call: () => void) => systemClock.after(Math.min(ms, 20), call) };
  await using served = await open({}, { store, clock });
  const client = await oldClient(served.listening.url);
  const taskId = await start(client, served);
  const stream = await client.stream("tasks/result", { taskId });
  const asked = await stream.next();
  expect(await client.respond(asked, accept)).toBe(503);
  expect(served.errors).toMatchObject([{ code: "STORE_UNAVAILABLE" }]);
  down = false;
  const again = await stream.next();
  expect(again).toMatchObject({ method: "elicitation/create", params: { message: "sure?" } });
  expect(again.id).not.toBe(asked.id);
  expect(await client.respond(again, accept)).toBe(202);
  await served.finish(await take(served), completed("done"));
  expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
});

test("a response counts once, in one shape, and for the owner of the task only", async () => {
  await using served = await open({ authenticate });
  const alice = await oldClient(served.listening.url, everyInput, "alice");
  const bob = await oldClient(served.listening.url, everyInput, "bob");
  const taskId = await start(alice, served);
  const stream = await alice.stream("tasks/result", { taskId });
  const asked = await stream.next();
  const idFor = (task: unknown, key: unknown = "sure") => `mcp-tasks:${JSON.stringify(["x", task, key])}`;
  // To a stranger another's task is as absent as one that never was.
  for (const id of [idFor(taskId), idFor("A".repeat(22)), idFor("x".repeat(100_000)), asked.id])
    expect(await bob.respond({ id }, accept)).toBe(202);
  for (const id of [idFor(taskId, "__proto__"), idFor(taskId, "other"), idFor(taskId, "k".repeat(100_000))])
    expect(await alice.respond({ id }, accept)).toBe(202);
  for (const result of [null, "yes", 7, [accept]])
    expect((await alice.post({ id: asked.id, result })).status, JSON.stringify(result)).toBe(400);
  expect((await alice.call("tasks/get", { taskId })).result.status).toBe("input_required");

  const deep = `${"[".repeat(50_000)}${"]".repeat(50_000)}`;
  const response = await fetch(served.listening.url, {
    method: "POST",
    headers: {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": "2025-11-25",
      "mcp-session-id": alice.session!,
      authorization: "Bearer alice",
    },
    body: `{"jsonrpc":"2.0","id":${JSON.stringify(idFor(taskId))},"result":{"action":"accept","content":{"ok":${deep}}}}`,
  });
  expect(response.status).toBe(202);
  expect((await alice.call("tasks/get", { taskId })).result.status).toBe("input_required");

  const [one, two] = await Promise.all([alice.respond(asked, accept), alice.respond(asked, { action: "decline" })]);
  expect([one, two]).toEqual([202, 202]);
  expect(await alice.respond(asked, { action: "cancel" })).toBe(202);
  const resumed = await take(served);
  expect([{ action: "accept", content: { ok: true } }, { action: "decline" }]).toContainEqual(
    resumed.journal.inputs.sure?.response,
  );
  await served.finish(resumed, completed("done"));
  // The next message is the result: what was answered is not taken back.
  expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
});

test("a response in a batch counts, too", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client, served);
  const stream = await client.stream("tasks/result", { taskId });
  const { id } = await stream.next();
  const body = JSON.stringify([{ jsonrpc: "2.0", id, result: accept }]);
  const headers = {
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-session-id": client.session!,
  };
  expect((await fetch(served.listening.url, { method: "POST", headers, body })).status).toBe(202);
  expect((await take(served)).journal.inputs.sure?.response).toEqual(accept);
});

test("a response to a question before a task is refused where nobody waits for it", async () => {
  await using served = await open();
  const other = await serve(served.parts, factory).listen();
  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", { name: "asks_first", arguments: {}, task: {} });
  const [name, size] = [await stream.next(), await stream.next()];
  const named = { action: "accept", content: { name: "Ada" } };
  expect(await client.respond(name, named, { url: other.url })).toBe(400);
  expect(await client.respond(name, named)).toBe(202);
  expect(await client.respond(size, { action: "accept", content: {} })).toBe(202);
  expect(await stream.next()).toMatchObject({ result: { task: { status: "working" } } });
  expect(await client.respond(name, named)).toBe(400);
  await other.close();
});

// "Input Required Status": whoever comes back is asked what is open by then.
test("questions one after another outlast a client that leaves and comes back", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client, served, "first");
  const leave = new AbortController();
  const left = await client.stream("tasks/result", { taskId }, { signal: leave.signal });
  const first = await left.next();
  leave.abort();
  // The question that was seen may be answered by whoever has left.
  expect(await client.respond(first, accept)).toBe(202);
  const resumed = await take(served);
  const stream = await client.stream("tasks/result", { taskId });
  await served.engine.attempts.park(resumed, asks("second"), false);
  const second = await stream.next();
  expect(second.params.message).toBe("second?");
  await client.respond(second, accept);
  const last = await take(served);
  expect(Object.keys(last.journal.inputs)).toEqual(["first", "second"]);
  await served.finish(last, completed("done"));
  expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
});

test("of two that wait for one result each is asked, the first answer counts, and the other is taken back", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client, served);
  const streams = [await client.stream("tasks/result", { taskId }), await client.stream("tasks/result", { taskId })];
  const [one, two]: Json[] = await Promise.all(streams.map((stream) => stream.next()));
  expect(one.id).not.toBe(two.id);
  await client.respond(two, accept);
  expect(await streams[0]!.next()).toMatchObject({
    method: "notifications/cancelled",
    params: { requestId: one.id },
  });
  await served.finish(await take(served), completed("done"));
  for (const stream of streams) expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
});

test("whoever waits takes a place, and what is over takes none", async () => {
  await using served = await open({ authenticate, maxStreamsPerOwner: 2 });
  const alice = await oldClient(served.listening.url, everyInput, "alice");
  const bob = await oldClient(served.listening.url, everyInput, "bob");
  const taskId = await start(alice, served);
  const leave = new AbortController();
  const waits = await alice.stream("tasks/result", { taskId }, { signal: leave.signal });
  const asking = await alice.stream("tools/call", { name: "asks_first", arguments: {}, task: {} });
  await waits.next();
  await asking.next();
  const full = { error: { code: -32603, message: expect.stringContaining("Too many") } };
  expect(await alice.call("tasks/result", { taskId })).toMatchObject(full);
  expect(await alice.call("tools/call", { name: "asks_first", arguments: {}, task: {} })).toMatchObject(full);
  const others = await start(bob, served);
  expect(await (await bob.stream("tasks/result", { taskId: others })).next()).toMatchObject({
    method: "elicitation/create",
  });
  await served.engine.answer(taskId, "alice", { sure: accept });
  await served.finish(await take(served), completed("done"));
  expect((await alice.call("tasks/result", { taskId })).result).toMatchObject({ content: [{ text: "done" }] });
  // Leaving gives the places back.
  leave.abort();
  await asking.cancel();
  const next = await start(alice, served, "next");
  const asked = await eventually(async () => {
    const message = await (await alice.stream("tasks/result", { taskId: next })).next();
    return message.error === undefined && message;
  });
  expect(asked).toMatchObject({ method: "elicitation/create", params: { message: "next?" } });
});
