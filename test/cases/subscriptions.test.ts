import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { ProtocolError } from "@modelcontextprotocol/server";
import { taskTool } from "../../src/tool.ts";
import type { Fields, Frames, Message, Wire } from "../wire/client.ts";
import { authenticate, bench, text, type Bench } from "./bench.ts";
import { rawPost, rawRequest, until } from "./setup.ts";

/*
 * Faults of other implementations in subscriptions to tasks.
 *
 * Elsewhere: BL-30, and the client's half of BL-29 and BL-33, are faults of clients, see test/client.
 */

const gated = taskTool({
  name: "gated",
  async run(_args, task) {
    await task.event("end");
    return text("done");
  },
});
const quick = taskTool({ name: "quick", run: () => text("quick") });
const asks = taskTool({
  name: "asks",
  async run(_args, task) {
    await task.report("about to ask", { progress: 1 });
    await task.elicit("name", { message: "Which?", schema: z.object({ value: z.string() }) });
    await task.event("end");
    return text("done");
  },
});
const broken = taskTool({
  name: "broken",
  async run(_args, task) {
    await task.event("end");
    throw new ProtocolError(-32050, "broken");
  },
});

const unknown = "AAAAAAAAAAAAAAAAAAAAAA";
let shared: Bench;
let client: Wire;
beforeAll(async () => {
  shared = await bench([gated, quick, asks, broken]);
  client = shared.wire();
});
afterAll(() => shared[Symbol.asyncDispose]());

const isAck = ({ method }: Message) => method === "notifications/subscriptions/acknowledged";
const shows =
  (status: string) =>
  ({ method, params }: Message) =>
    method === "notifications/tasks" && params?.status === status;

test("BL-29: in 200 subscriptions around the moment of completion none misses the end", async () => {
  const once = async (index: number) => {
    const id = await client.start("gated");
    const end = () => shared.tasks.send(id, "end", 1);
    const early = index % 3 === 0 ? end() : null;
    const opening = client.listen([id]);
    if (index % 3 === 1) await end();
    const stream = await opening;
    const ack = await stream.next();
    expect(ack?.params?.notifications?.taskIds).toEqual([id]);
    if (index % 3 === 2) void end();
    await early;
    await stream.find(shows("completed"));
    const last = await stream.next();
    expect(last?.result?.resultType).toBe("complete");
  };
  for (let round = 0; round < 10; round++)
    await Promise.all(Array.from({ length: 20 }, (_, index) => once(round * 20 + index)));
});

test("BL-31: a subscription to nothing is acknowledged as such, and ends at once", async () => {
  for (const taskIds of [[], [unknown], [unknown, "not an id", ""]]) {
    const stream = await client.listen(taskIds, { id: "sub" });
    const all = await Array.fromAsync(stream);
    expect(stream.status).toBe(200);
    expect(all.map((message) => [isAck(message), message.params?.notifications?.taskIds])).toEqual([
      [true, []],
      [false, undefined],
    ]);
    expect(all[1]).toMatchObject({ id: "sub", result: { resultType: "complete" } });
  }
});

test("BL-31: a subscription to finished tasks tells their ends and then ends itself", async () => {
  const id = await client.start("quick");
  await client.until(id);
  const all = await Array.fromAsync(await client.listen([id, unknown]));
  expect(all).toHaveLength(3);
  expect(all[0]?.params?.notifications?.taskIds).toEqual([id]);
  expect(all[1]?.params).toMatchObject({ taskId: id, status: "completed" });
  expect(all[2]?.result?.resultType).toBe("complete");
});

test("BL-32: a subscription to 100,000 tasks is refused, and one with a thousand duplicates follows one task", async () => {
  const many = Array.from({ length: 100_000 }, (_, index) => index.toString(36).padStart(22, "A"));
  const refused = await client.listen(many);
  expect((await refused.next())?.error?.code).toBe(-32602);
  expect(await refused.next()).toBeUndefined();

  const id = await client.start("gated");
  const stream = await client.listen(Array.from({ length: 1_000 }, () => id));
  expect((await stream.next())?.params?.notifications?.taskIds).toEqual([id]);
  await stream.find(shows("working"));
  await shared.tasks.send(id, "end", 1);
  expect((await Array.fromAsync(stream)).filter(shows("completed"))).toHaveLength(1);
});

test("BL-32: one caller's streams are bounded, others still get theirs, and reads stay quick", async () => {
  const tokens = { a: { sub: "alice" }, b: { sub: "bob" } };
  await using own = await bench([gated], {
    serve: { authenticate: authenticate(tokens), maxStreamsPerOwner: 30, maxStreams: 50 },
  });
  const [alice, bob] = [own.wire({ token: "a" }), own.wire({ token: "b" })];
  const [hers, his] = [await alice.start("gated"), await bob.start("gated")];
  const opened = await Promise.all(Array.from({ length: 100 }, () => alice.listen([hers])));
  const first = await Promise.all(opened.map((stream) => stream.next()));
  const held = opened.filter((_, index) => first[index] !== undefined && isAck(first[index]));
  expect(held).toHaveLength(30);
  expect(new Set(first.flatMap((message) => message?.error?.code ?? []))).toEqual(new Set([-32603]));

  const times: number[] = [];
  for (let index = 0; index < 50; index++) {
    const began = performance.now();
    await alice.get(hers);
    times.push(performance.now() - began);
  }
  expect(times.toSorted((a, b) => a - b)[25]).toBeLessThan(100);
  const other = await bob.listen([his]);
  expect((await other.next())?.params?.notifications?.taskIds).toEqual([his]);

  await Promise.all(held.map((stream) => stream.close()));
  const again = await until("a place is free again", async () => {
    const stream = await alice.listen([hers]);
    return isAck((await stream.next()) ?? { jsonrpc: "2.0" }) && stream;
  });
  await again.close();
  await other.close();
});

test("BL-33: a silent subscription is kept alive by comments", async () => {
  await using own = await bench([gated], { serve: { keepAliveMs: 30 } });
  const id = await own.wire().start("gated");
  const sent = rawPost(own.url, rawRequest("subscriptions/listen", { notifications: { taskIds: [id] } }));
  let body = "";
  sent.on("response", (response) =>
    response.on("error", () => {}).on("data", (chunk: Buffer) => (body += chunk.toString())),
  );
  await until("five comments came", () => (body.match(/^:/gm) ?? []).length >= 5);
  expect(body.match(/^data:/gm)).toHaveLength(2);
  sent.destroy();
});

test.each(["a string", 41])(
  "BL-34: on subscription %j each frame is the whole task, as a read gives it",
  async (id) => {
    const walk = await client.start("asks");
    const failing = await client.start("broken");
    const leaving = await client.start("gated");
    const stream: Frames = await client.listen([walk, failing, leaving], { id });
    /** Compares a state that stays with its frame: after an answer the task is `working` with no message for a moment. */
    const compare = async (taskId: string, status: string): Promise<Fields> => {
      const fits = (task: Fields = {}) =>
        task.status === status && (status !== "working" || task.statusMessage === "about to ask");
      const { _meta: told, resultType: _, ...read } = await client.untilTask(taskId, fits);
      const frame = await stream.find(({ params }) => params?.taskId === taskId && fits(params));
      const { _meta, ...task } = frame.params ?? {};
      const { "io.modelcontextprotocol/serverInfo": __, ...about } = told ?? {};
      expect(_meta).toEqual({ ...about, "io.modelcontextprotocol/subscriptionId": id });
      expect(task).toEqual(read);
      return task;
    };
    const [key = ""] = Object.keys((await compare(walk, "input_required")).inputRequests ?? {});
    await client.update(walk, { [key]: { action: "accept", content: { value: "x" } } });
    await compare(walk, "working");
    await shared.tasks.send(walk, "end", 1);
    await compare(walk, "completed");
    await shared.tasks.send(failing, "end", 1);
    await compare(failing, "failed");
    await client.cancel(leaving);
    await compare(leaving, "cancelled");
    const last = await stream.next();
    expect([last?.id, last?.result?.resultType]).toEqual([id, "complete"]);
  },
);
