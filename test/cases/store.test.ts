import { DatabaseSync } from "node:sqlite";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { createEngine } from "../../src/engine/engine.ts";
import { taskTool, type TaskContext } from "../../src/tool.ts";
import type { Fields, Reply } from "../wire/client.ts";
import { authenticate, bench, text } from "./bench.ts";
import { accept, folder, journal, program, until } from "./setup.ts";

/*
 * Faults of other implementations in keeping tasks.
 *
 * | Not here | Why                                                                              |
 * | -------- | -------------------------------------------------------------------------------- |
 * | BL-47    | It is about the size of a NOTIFY in Postgres; the SQLite store has none.         |
 * | BL-48    | It is about a lost LISTEN connection to Postgres; the SQLite store has none.     |
 */

const value = z.object({ value: z.string() });
const said = (task: Fields | undefined) => task?.content?.[0]?.text;

test("BL-36: the fields of a form keep their order, also over a restart", async () => {
  using files = folder();
  const file = files.file("tasks.db");
  const form = z.object({ zeta: z.string(), alpha: z.string(), mm: z.string() });
  const tool = taskTool({
    name: "form",
    run: async (_args, task) => text(JSON.stringify(await task.elicit("form", { message: "Fill in", schema: form }))),
  });
  const fields = (task: Fields) =>
    Object.keys((task.inputRequests?.form?.params?.requestedSchema as { properties: object }).properties);
  const first = await bench([tool], { file });
  const id = await first.wire().start("form");
  expect(fields(await first.wire().until(id, "input_required"))).toEqual(["zeta", "alpha", "mm"]);
  await first[Symbol.asyncDispose]();

  await using second = await bench([tool], { file });
  const wire = second.wire();
  expect(fields(await wire.until(id, "input_required"))).toEqual(["zeta", "alpha", "mm"]);
  await wire.update(id, { form: { action: "accept", content: { mm: "3", zeta: "1", alpha: "2" } } });
  expect(said((await wire.until(id)).result)).toBe('{"zeta":"1","alpha":"2","mm":"3"}');
});

describe("BL-37", () => {
  const circle: Record<string, unknown> = {};
  circle.self = circle;
  const trap = Object.defineProperty({}, "value", {
    enumerable: true,
    get() {
      throw new Error("no reading");
    },
  });
  const values: Record<string, unknown> = {
    "a BigInt": { value: 1n },
    "a circle": circle,
    "a getter that throws": trap,
    "a toJSON that throws": { toJSON: () => trap.valueOf() === trap && (trap as { value: unknown }).value },
  };
  let runs = 0;
  const kind = z.object({ kind: z.string() });
  const returns = taskTool({
    name: "returns",
    inputSchema: kind,
    run({ kind }) {
      runs += 1;
      return { content: [], structuredContent: values[kind] as Record<string, unknown> };
    },
  });
  const throws = taskTool({
    name: "throws",
    inputSchema: kind,
    run({ kind }) {
      runs += 1;
      throw Object.assign(new Error("it broke"), { config: values[kind], cause: values[kind] });
    },
  });
  const odd: Record<string, unknown> = {
    undefined,
    null: null,
    "a string": "words",
    "a list": [1],
    "an object whose content throws": Object.defineProperty(
      {},
      "content",
      Object.getOwnPropertyDescriptor(trap, "value") ?? {},
    ),
    "a proxy that was revoked": (() => {
      const { proxy, revoke } = Proxy.revocable({}, {});
      revoke();
      return proxy;
    })(),
    "an object without content": { answer: 42 },
  };
  const returnsOdd = taskTool({
    name: "returns_odd",
    inputSchema: kind,
    run({ kind }) {
      runs += 1;
      // A function, so that a promise doesn't look for `then` in it.
      return odd[kind] as never;
    },
  });

  test.each(Object.keys(values))("BL-37: a result with %s fails its task, and the handler ran once", async (name) => {
    await using own = await bench([returns]);
    runs = 0;
    const ended = await own.wire().until(await own.wire().start("returns", { kind: name }));
    expect(ended).toMatchObject({
      status: "failed",
      error: { code: -32603, message: expect.stringContaining("JSON") as string },
    });
    expect(runs).toBe(1);
  });

  test.each(Object.keys(values))(
    "BL-37: an error that carries %s is a tool error, and the handler ran once",
    async (name) => {
      await using own = await bench([throws]);
      runs = 0;
      const ended = await own.wire().until(await own.wire().start("throws", { kind: name }));
      expect([ended.status, ended.result?.isError, said(ended.result)]).toEqual(["completed", true, "it broke"]);
      expect(runs).toBe(1);
    },
  );

  test.each(Object.keys(odd))("BL-37: a handler that returns %s ends its task, and ran once", async (name) => {
    await using own = await bench([returnsOdd]);
    runs = 0;
    const ended = await own.wire().until(await own.wire().start("returns_odd", { kind: name }));
    expect(ended.status === "failed" ? ended.error?.code : ended.result?.isError).toBe(
      ended.status === "failed" ? -32603 : true,
    );
    expect(runs).toBe(1);
  });

  test("BL-37: NaN becomes null and a date its text, as JSON has it", async () => {
    const tool = taskTool({
      name: "lossy",
      run: () => ({ content: [], structuredContent: { nan: Number.NaN, date: new Date(0), none: undefined } }),
    });
    await using own = await bench([tool]);
    const { result } = await own.wire().until(await own.wire().start("lossy"));
    expect(result?.structuredContent).toEqual({ nan: null, date: "1970-01-01T00:00:00.000Z" });
  });
});

describe("BL-39", () => {
  test("BL-39: a task whose time runs out while it works fails for good, its signal aborts and its end is not published", async () => {
    let context: TaskContext | undefined;
    const stubborn = taskTool({
      name: "stubborn",
      task: { timeout: "400ms" },
      async run(_args, task) {
        context = task;
        await pause(1_000);
        return text("too late");
      },
    });
    await using own = await bench([stubborn]);
    const wire = own.wire();
    const id = await wire.start("stubborn");
    const states = new Set<string>();
    await wire.untilTask(id, ({ status = "" }) => {
      states.add(status);
      return status === "failed";
    });
    await until("its signal aborted", () => context?.signal.aborted);
    const ended = (await wire.get(id)).body.result;
    expect(ended?.error?.code).toBe(-32603);
    expect([...states]).toEqual(["working", "failed"]);
    await pause(900);
    for (const reply of [await wire.update(id, { x: {} }), await wire.cancel(id)])
      expect(reply.body.error).toBeUndefined();
    expect((await wire.get(id)).body.result).toEqual(ended);
  });

  test("BL-39: a task whose time runs out while it asks fails, and an answer that comes then starts nothing", async () => {
    let went = 0;
    const asks = taskTool({
      name: "asks",
      task: { timeout: "300ms" },
      async run(_args, task) {
        await task.elicit("name", { message: "?", schema: value });
        went += 1;
        return text("went on");
      },
    });
    await using own = await bench([asks]);
    const wire = own.wire();
    const id = await wire.start("asks");
    await wire.until(id, "input_required");
    const ended = await wire.until(id);
    expect(ended.status).toBe("failed");
    expect((await wire.update(id, { name: { action: "accept", content: { value: "x" } } })).body.error).toBeUndefined();
    await pause(100);
    expect((await wire.get(id)).body.result).toEqual(ended);
    expect(went).toBe(0);
  });
});

describe("BL-41", () => {
  const brief = taskTool({ name: "brief", task: { keep: "150ms" }, run: () => text("brief") });

  test("BL-41: once a task expired, every method says so in the same words, and no subscription takes it", async () => {
    await using own = await bench([brief]);
    const wire = own.wire();
    const id = await wire.start("brief");
    await until("the task expired", async () => (await wire.get(id)).body.error);
    const replies = [
      await wire.get(id, { id: 1 }),
      await wire.update(id, {}, { id: 1 }),
      await wire.cancel(id, { id: 1 }),
    ];
    expect(replies[0]?.body.error?.code).toBe(-32602);
    expect(replies[0]?.body.error?.message).toContain("expired");
    expect(new Set(replies.map(({ body }) => JSON.stringify(body))).size).toBe(1);
    const all = await Array.fromAsync(await wire.listen([id]));
    expect(all[0]?.params?.notifications?.taskIds).toEqual([]);
  });

  test("BL-41: a task expires on time even if nothing sweeps", async () => {
    await using own = await bench([brief]);
    const wire = own.wire();
    const engine = createEngine({ store: own.store });
    const ended = await wire.until(await wire.start("brief"));
    const id = ended.taskId ?? "";
    const end = Date.parse(ended.createdAt ?? "") + (ended.ttlMs ?? 0);
    await pause(Math.max(0, end - Date.now()) + 2);
    const expired = { code: "TASK_EXPIRED" };
    await expect(engine.read(id, "")).rejects.toMatchObject(expired);
    await expect(engine.answer(id, "", {})).rejects.toMatchObject(expired);
    await expect(engine.cancel(id, "")).rejects.toMatchObject(expired);
  });
});

test("BL-42, BL-44: of a thousand tasks nothing but the memory of their ids is left, and no id resembles another", async () => {
  using files = folder();
  const file = files.file("tasks.db");
  const busy = taskTool({
    name: "busy",
    task: { keep: "100ms" },
    async run(_args, task) {
      await task.step("one", () => 1);
      await task.elicit.raw("two", { message: "?", schema: value });
      await task.event("three");
      return text("busy");
    },
  });
  await using own = await bench([busy], { file, tasks: { liveTasksPerOwner: null }, work: { concurrency: 50 } });
  const wire = own.wire();
  using db = new DatabaseSync(file, { readOnly: true });
  const tables = (db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all() as { name: string }[])
    .map(({ name }) => name)
    .filter((name) => !name.startsWith("sqlite_") && name !== "tombstone");
  const counts = () =>
    Object.fromEntries(
      tables.map((name) => [name, db.prepare(`SELECT count(*) AS n FROM ${name}`).get()?.n as number]),
    );
  const baseline = counts();

  const ids: string[] = [];
  for (let round = 0; round < 20; round++)
    ids.push(
      ...(await Promise.all(
        Array.from({ length: 50 }, async () => {
          const id = await wire.start("busy");
          await own.tasks.send(id, "three", 1);
          return id;
        }),
      )),
    );
  expect(counts().task).toBeGreaterThan(500);
  await Promise.all(
    ids.map(async (id, index) => {
      if (index % 4 === 0) return wire.cancel(id);
      await wire.untilTask(id, ({ status }) => status === "input_required");
      return wire.update(id, { two: { action: "decline" } });
    }),
  );
  await until("the rows are as before", () => JSON.stringify(counts()) === JSON.stringify(baseline), 20_000);

  expect(new Set(ids).size).toBe(1_000);
  for (const id of ids) expect(Buffer.from(id, "base64url").byteLength * 8).toBeGreaterThanOrEqual(122);
  // With 64 letters a place, a counter or a common prefix shows as a place with few of them.
  for (let place = 0; place < 21; place++) expect(new Set(ids.map((id) => id[place])).size).toBeGreaterThan(50);
}, 60_000);

test("BL-43: who fills their own quota is refused before a row exists, and others are not", async () => {
  const gated = taskTool({
    name: "gated",
    async run(_args, task) {
      await task.event("end");
      return text("end");
    },
  });
  const serve = { authenticate: authenticate({ a: { sub: "alice" }, b: { sub: "bob" } }) };
  await using own = await bench([gated], { tasks: { liveTasksPerOwner: 5 }, serve });
  const [alice, bob] = [own.wire({ token: "a" }), own.wire({ token: "b" })];
  const replies = await Promise.all(Array.from({ length: 12 }, () => alice.call("gated")));
  const made = replies.flatMap(({ body }) => body.result?.taskId ?? []);
  expect(made).toHaveLength(5);
  expect(new Set(replies.flatMap(({ body }) => body.error?.code ?? []))).toEqual(new Set([-32603]));
  expect(await own.store.list({ limit: 100 })).toHaveLength(5);
  await bob.start("gated");
  await alice.cancel(made[0] ?? "");
  await alice.start("gated");
});

test("BL-45: killed at any moment, the server never shows a state without what belongs to it, and loses nothing", async () => {
  using files = folder();
  const flags = ["--db", files.file("tasks.db"), "--keep", "60000", "--attempts", "20"];
  const ids: string[] = [];
  for (let round = 0; round < 5; round++) {
    await using server = await program(flags);
    // The wire client refuses a task whose payload doesn't go with its status.
    for (const id of ids) expect((await server.wire.get(id)).body.error).toBeUndefined();
    const before = ids.length;
    const starting = Promise.allSettled(
      Array.from({ length: 60 }, async (_, index) => {
        const tool = ["journal", "protocol_error_job", "ask_twice"][index % 3] ?? "";
        ids.push(await server.wire.start(tool));
      }),
    );
    // However slow the machine: a moment at which nothing was acknowledged would show nothing.
    await until("a task was started", async () => ids.length > before);
    await pause(Math.random() * 150);
    await server.stop("SIGKILL");
    await starting;
  }
  await using server = await program(flags);
  const ended = await Promise.all(ids.map((id) => server.wire.until(id, "completed", "failed", "input_required")));
  expect(ended.length).toBeGreaterThan(0);
  expect(ended.filter(({ error }) => error?.message.includes("given up"))).toEqual([]);
  const purging = await program(["--db", files.file("short.db"), "--keep", "30"]);
  const gone = await Promise.all(Array.from({ length: 100 }, () => purging.wire.start("journal")));
  await pause(Math.random() * 100);
  await purging.stop("SIGKILL");
  await using after = await program(["--db", files.file("short.db"), "--keep", "30"]);
  await Promise.all(
    gone.map((id) =>
      until("the task is over", async () => {
        const { body } = await after.wire.get(id);
        return body.error?.message.includes("expired");
      }),
    ),
  );
}, 60_000);

test("BL-46: four workers and a front end on one file run 200 tasks once each, and no lock shows on the wire", async () => {
  using files = folder();
  const db = ["--db", files.file("tasks.db")];
  const path = files.file("journal");
  const [front, ...workers] = await Promise.all([
    program([...db, "--role", "front"]),
    ...Array.from({ length: 4 }, () => program([...db, "--role", "worker", "--concurrency", "5"])),
  ]);
  const replies: Reply[] = [];
  for (let round = 0; round < 8; round++)
    replies.push(
      ...(await Promise.all(
        Array.from({ length: 25 }, (_, index) => front.wire.call("journal", { path, tag: `t${round * 25 + index}` })),
      )),
    );
  expect(replies.flatMap(({ body }) => body.error ?? [])).toEqual([]);
  for (const { body } of replies) expect((await front.wire.until(body.result?.taskId ?? "")).status).toBe("completed");
  const { lines, count } = journal(path);
  expect(Array.from({ length: 200 }, (_, index) => count("start", `t${index}`))).toEqual(
    Array.from({ length: 200 }, () => 1),
  );
  expect(new Set(lines().map(([, , pid]) => pid)).size).toBeGreaterThan(1);
  for (const process of [front, ...workers]) expect(process.errors()).not.toMatch(/locked|STORE_BUSY/);
  for (const process of [front, ...workers]) await process[Symbol.asyncDispose]();
}, 60_000);

test("BL-60: what is under the limits comes back exactly, what is above is refused or ends the task", async () => {
  await using server = await program([]);
  const { wire } = server;
  const tag = "ä".repeat(1_500_000);
  const large = await wire.until(await wire.start("journal", { tag }));
  expect(said(large.result)).toBe(`journaled ${tag}`);
  const bytes = 4_000_000;
  const fits = await wire.until(await wire.start("hostile", { kind: "huge", bytes }));
  expect(said(fits.result)?.length).toBe(bytes);
  for (const more of [5_000_000, 50_000_000]) {
    const over = await wire.until(await wire.start("hostile", { kind: "huge", bytes: more }));
    expect([over.status, over.result?.isError]).toEqual(["completed", true]);
    expect(said(over.result)).toContain("larger");
  }
  const args = await wire.call("journal", { tag: "x".repeat(20_000_000) });
  expect([args.status, args.body.error?.code]).toEqual([413, -32602]);

  const id = await wire.start("ask_twice");
  const open = await wire.until(id, "input_required");
  const answer = accept(open.inputRequests?.first, { value: "x".repeat(20_000_000) });
  expect((await wire.update(id, { first: answer })).status).toBe(413);
  const { pollIntervalMs: _, ...still } = (await wire.get(id)).body.result ?? {};
  expect(still).toEqual({ ...still, inputRequests: open.inputRequests, lastUpdatedAt: open.lastUpdatedAt });
}, 60_000);
