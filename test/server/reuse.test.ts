import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterAll, describe, expect, test } from "vitest";
import { idempotencyExtension, idempotencyKey } from "../../src/protocol/idempotency.ts";
import type { ServeOptions } from "../../src/server/http.ts";
import { serveStdio } from "../../src/server/stdio.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { authenticate, completed, eventually, factory, open, parameters, tools, type SendOptions } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "reuse-"));
afterAll(() => rmSync(folder, { recursive: true }));

const key = "0123456789abcdef012345";
const keyed = (args: object = { text: "x" }, given: unknown = key) => ({
  name: "optional",
  arguments: args,
  _meta: { [idempotencyKey]: given },
});
const undeclared: SendOptions = { capabilities: {} };

/** A server, and what has come through to its store. */
async function start(options: ServeOptions = {}) {
  const store = sqlite(":memory:");
  const seen = { creates: 0 };
  const counted: TaskStore = {
    ...store,
    async create(task, limit) {
      const created = await store.create(task, limit);
      seen.creates += 1;
      return created;
    },
  };
  const served = await open(options, { store: counted });
  return { ...served, seen, tasks: () => store.list({ limit: 100 }) };
}

type Started = Awaited<ReturnType<typeof start>>;

describe("a call with an idempotency key", () => {
  test("made again is answered with the task it has started, whatever the order of its arguments", async () => {
    await using served = await start();
    const first = await served.call("tools/call", keyed({ text: "x", count: 2 }));
    expect(first.body.result).toMatchObject({ resultType: "task", status: "working" });
    const again = await served.call("tools/call", keyed({ count: 2, text: "x" }));
    expect(again.body.result).toMatchObject({ resultType: "task", taskId: first.body.result!.taskId });
    await served.finish(await served.claim(), completed("done"));
    const later = await served.call("tools/call", keyed({ text: "x", count: 2 }));
    expect(later.body.result).toMatchObject({ resultType: "complete", content: [{ text: "done" }] });
    expect(await served.tasks()).toHaveLength(1);
  });

  test("that is another call is refused, and is told nothing of the first one", async () => {
    await using served = await start();
    const first = await served.call("tools/call", keyed());
    const others = [keyed({ text: "y" }), { ...keyed(), name: "required", arguments: {} }];
    for (const other of others) {
      const { body } = await served.call("tools/call", other);
      expect(body.error).toMatchObject({ code: -32602, message: expect.stringContaining("another call") });
      expect(JSON.stringify(body)).not.toContain(first.body.result!.taskId);
    }
    expect(await served.tasks()).toHaveLength(1);
  });

  test("that another owner makes as well is theirs", async () => {
    await using served = await start({ authenticate });
    const ids = await Promise.all(
      ["alice", "bob", "alice"].map(async (token) => {
        const { body } = await served.call("tools/call", keyed(), { token });
        return body.result!.taskId as string;
      }),
    );
    expect(ids[2]).toBe(ids[0]);
    expect(ids[1]).not.toBe(ids[0]);
  });

  test.each([
    ["short", "x".repeat(21)],
    ["long", "x".repeat(129)],
    ["spaced", `${key} x`],
    ["é", `${key}é`],
    ["a number", 7],
    ["null", null],
  ])("that can't be one, being %s, is refused, and there is no task", async (_, given) => {
    await using served = await start();
    const { body } = await served.call("tools/call", keyed({ text: "x" }, given));
    expect(body.error).toMatchObject({ code: -32602, message: expect.stringContaining(idempotencyKey) });
    expect(await served.tasks()).toEqual([]);
  });

  test("starts one task where two front ends get it at the same moment", async () => {
    const file = join(folder, "two.db");
    await using here = await open({}, { store: sqlite(file) });
    await using there = await open({}, { store: sqlite(file) });
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, n) => (n % 2 === 0 ? here : there).call("tools/call", keyed())),
    );
    expect(new Set(answers.map(({ body }) => body.result!.taskId)).size).toBe(1);
  });

  test("goes on when a client without tasks loses the answer, which it gets when it asks again", async () => {
    await using served = await start();
    const leave = new AbortController();
    const lost = served.call("tools/call", keyed(), { ...undeclared, signal: leave.signal });
    const claim = await eventually(() => served.claim().catch(() => undefined));
    leave.abort();
    await expect(lost).rejects.toThrow();
    const again = served.call("tools/call", keyed(), undeclared);
    await served.finish(claim, completed("done"));
    expect((await again).body.result).toMatchObject({ resultType: "complete", content: [{ text: "done" }] });
    const late = await served.call("tools/call", keyed(), undeclared);
    expect(late.body.result).toMatchObject({ content: [{ text: "done" }] });
    expect(await served.tasks()).toHaveLength(1);
  });

  test("is offered by the server for the tools that become tasks, and for no other", async () => {
    await using served = await start();
    const { body } = await served.call("server/discover");
    expect(body.result!.capabilities.extensions[idempotencyExtension]).toEqual({
      tools: tools.map(({ name }) => name),
    });
  });
});

describe("the same call again, without a key", () => {
  const call = { name: "typed", arguments: {} };
  const alice: SendOptions = { ...undeclared, token: "alice" };

  /** Makes calls one after the other, each once the one before has arrived, and counts their tasks. */
  async function tasksFor(served: Started, calls: readonly (readonly [params: object, how: SendOptions])[]) {
    const before = await served.tasks();
    const answers = [];
    for (const [params, how] of calls) {
      const { creates } = served.seen;
      answers.push(served.call("tools/call", params, how));
      await eventually(() => served.seen.creates > creates);
    }
    return { answers, count: (await served.tasks()).length - before.length };
  }

  test("gets the same task while that runs, from a client that knows neither tasks nor keys", async () => {
    await using served = await start({ authenticate });
    const { answers, count } = await tasksFor(served, [
      [call, alice],
      [call, alice],
    ]);
    expect(count).toBe(1);
    await served.finish(await served.claim(), completed("done", { structuredContent: { url: "u" } }));
    for (const answer of answers) expect((await answer).body.result).toMatchObject({ content: [{ text: "done" }] });
    const { answers: fresh, count: more } = await tasksFor(served, [[call, alice]]);
    expect(more).toBe(1);
    await served.finish(await served.claim(), completed("new", { structuredContent: { url: "u" } }));
    expect((await fresh[0]!).body.result).toMatchObject({ content: [{ text: "new" }] });
  });

  test.each<[string, readonly (readonly [object, SendOptions])[]]>([
    [
      "of somebody else",
      [
        [call, alice],
        [call, { ...undeclared, token: "bob" }],
      ],
    ],
    [
      "with other arguments",
      [
        [{ name: "optional", arguments: { text: "x" } }, alice],
        [{ name: "optional", arguments: { text: "y" } }, alice],
      ],
    ],
    [
      "of a tool whose author turns this off",
      [
        [{ name: "each" }, alice],
        [{ name: "each" }, alice],
      ],
    ],
    [
      "of a client that knows tasks",
      [
        [call, { token: "alice" }],
        [call, { token: "alice" }],
      ],
    ],
  ])("%s is another task", async (_, calls) => {
    await using served = await start({ authenticate });
    const { count } = await tasksFor(served, calls);
    expect(count).toBe(2);
  });

  test("is another task where nobody is authenticated: it may be a stranger's", async () => {
    await using served = await start();
    const { count } = await tasksFor(served, [
      [call, undeclared],
      [call, undeclared],
    ]);
    expect(count).toBe(2);
  });

  test("is the same task on one connection of stdio, and another on another connection", async () => {
    await using served = await start();
    const connect = () => {
      const input = new PassThrough();
      const handle = serveStdio(served.parts, factory, { input, output: new PassThrough(), drainMs: 0 });
      const send = async (id: number) => {
        const { creates } = served.seen;
        const params = parameters(call, {});
        input.write(`${JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params })}\n`);
        await eventually(() => served.seen.creates > creates);
      };
      return { handle, send };
    };
    const [one, other] = [connect(), connect()];
    await one.send(1);
    await one.send(2);
    expect(await served.tasks()).toHaveLength(1);
    await other.send(1);
    expect(await served.tasks()).toHaveLength(2);
    await Promise.all([one.handle.close(), other.handle.close()]);
  });
});
