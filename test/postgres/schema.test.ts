import { readFileSync } from "node:fs";
import { Client } from "pg";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import {
  asks,
  begin,
  claim,
  claimOne,
  create,
  form,
  hour,
  leaseMs,
  newTask,
  owner,
  waits,
} from "../../src/store/contract/kit.ts";
import { postgres } from "../../src/store/postgres/index.ts";
import { manualClock } from "../../src/testing.ts";
import { dropSchemas, freshSchema, openStore, query, url } from "./database.ts";

afterAll(dropSchemas);

const sql = (name: string) => readFileSync(new URL(`../../sql/postgres/${name}.sql`, import.meta.url), "utf8");

describe("rights", () => {
  const roles: string[] = [];
  afterEach(async () => {
    for (const role of roles.splice(0)) await query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  });

  /** The statements of the guide, for another schema and role. */
  function documented(schema: string, role: string): string {
    const guide = readFileSync(new URL("../../docs/guide/postgres.md", import.meta.url), "utf8");
    const [, statements = ""] = /## Rights[^]*?```sql\n([^]*?)```/.exec(guide) ?? [];
    expect(statements).toContain("CREATE ROLE tasks");
    return statements
      .replaceAll("mcp_tasks", schema)
      .replaceAll(/\btasks\b/g, role)
      .replace("'…'", "'secret'");
  }

  /** A store of a role that has the rights of the guide, and no others. */
  async function openAsRole() {
    const schema = freshSchema();
    const role = `${schema}_role`;
    const maker = openStore(schema);
    await maker.nextDue();
    await maker[Symbol.asyncDispose]();
    // No more than the guide says: what everybody may do by default is taken from everybody.
    await query(`REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA ${schema} FROM PUBLIC`);
    await query(documented(schema, role));
    roles.push(role);
    const as = new URL(url);
    as.username = role;
    as.password = "secret";
    return { schema, role, url: as.href };
  }

  test("those of the guide are enough for every verb", async () => {
    const as = await openAsRole();
    const clock = manualClock();
    await using store = postgres(as.url, { schema: as.schema, clock });
    const heard = new Promise((resolve) => store.watch(resolve));
    const first = await begin(store, { keepMs: 0 });
    await heard;
    expect(await store.startStep(first, "s")).toBe(true);
    expect(await store.recordStep(first, "s", { state: "done", value: "1" })).toBe(true);
    expect(await store.setStatus(first, "half", null)).toBe(true);
    expect(await store.journal(first)).toMatchObject({ inputs: {} });
    expect(await store.renew("worker-1", [first], leaseMs)).toEqual({ lost: [], cancelled: [] });
    expect(await store.park(first, asks("a"), false)).toBe(true);
    expect(await store.answer(first.taskId, owner, { a: { action: "accept" } }, null)).toMatchObject({
      status: "working",
    });
    expect(await store.send(first.taskId, "e", "1")).toBe(true);
    const again = await claimOne(store);
    expect(await store.release(again, { delayMs: 0, spend: false })).toBe(true);
    expect(await store.finish(await claimOne(store), { status: "completed", result: "1" })).toBe(true);
    expect(await store.create(newTask(), 1_000)).toMatchObject({ status: "working" });
    await begin(store, { tool: "lost" });
    expect(await store.nextDue()).toBe(leaseMs);
    const cancelled = await create(store);
    expect(await store.requestCancel(cancelled.id, owner, 0)).toMatchObject({ status: "cancelled" });
    await create(store, { timeoutMs: 1 });
    clock.advance(1);
    expect(await store.sweep()).toEqual({ timedOut: 1, cancelled: 0, purged: [first.taskId], more: false });
    expect(await store.get(first.taskId, owner)).toBe("expired");
    expect(await store.list({ limit: 10 })).toHaveLength(4);
  });

  test("those of the guide are for the tasks alone, and for tables that come later", async () => {
    const as = await openAsRole();
    for (const forbidden of [
      `INSERT INTO ${as.schema}.migration (version) VALUES (1000)`,
      `TRUNCATE ${as.schema}.task CASCADE`,
      `DROP TABLE ${as.schema}.lane`,
      `CREATE TABLE ${as.schema}.other (id integer)`,
      `CREATE OR REPLACE FUNCTION ${as.schema}.later(bigint, double precision) RETURNS bigint LANGUAGE sql AS 'SELECT 1'`,
    ])
      await expect(query(forbidden, [], as.url)).rejects.toThrow(/permission denied|must be owner/);
    await query(`CREATE TABLE ${as.schema}.other (id integer)`);
    expect(await query(`INSERT INTO ${as.schema}.other VALUES (1) RETURNING id`, [], as.url)).toEqual([{ id: 1 }]);
    await using elsewhere = postgres(as.url, { schema: freshSchema() });
    await expect(create(elsewhere)).rejects.toMatchObject({ code: "STORE_UNREADABLE" });
  });
});

describe("versions side by side", () => {
  test("a schema that is newer is refused and left as it was", async () => {
    const schema = freshSchema();
    const store = openStore(schema);
    await create(store);
    await store[Symbol.asyncDispose]();
    await query(`INSERT INTO ${schema}.migration (version) VALUES (1000)`);
    await using later = openStore(schema);
    await expect(create(later)).rejects.toMatchObject({ code: "STORE_NEWER" });
    expect(await query(`SELECT * FROM ${schema}.task`)).toHaveLength(1);
    expect(await query(`SELECT count(*)::int AS count FROM ${schema}.migration WHERE version = 1000`)).toEqual([
      { count: 1 },
    ]);
  });

  test("a store that runs goes on when a newer version has migrated", async () => {
    const schema = freshSchema();
    await using store = openStore(schema);
    await create(store);
    await query(`INSERT INTO ${schema}.migration (version) VALUES (1000)`);
    expect(await store.finish(await claimOne(store), { status: "completed", result: "1" })).toBe(true);
  });

  /** A schema as the first version made it, and the statements of that version, on a connection that has prepared them. */
  async function openFirstVersion() {
    const schema = freshSchema();
    await query(`
      CREATE SCHEMA ${schema};
      CREATE TABLE ${schema}.migration (version integer PRIMARY KEY, at timestamptz DEFAULT now());
      SET search_path = ${schema}, pg_temp;
      ${sql("0001_tasks")}
      ${sql("0002_verbs")}
      INSERT INTO migration (version) VALUES (1), (2)`);
    const client = new Client(url);
    await client.connect();
    const failures = ["{}", "late", "{}", "lost", "{}", "spent"];
    const run = async (name: string, ...values: unknown[]) => {
      const parameters = [null, ...values].map((_, n) => `$${n + 1}`).join(", ");
      const text = `SELECT * FROM ${schema}.${name}(${parameters})`;
      return (await client.query({ name, text, values: [null, ...values] })).rows as Record<string, unknown>[];
    };
    return {
      schema,
      failures,
      run,
      create: (id: string, limit: number | null) =>
        run(
          "create_task",
          id,
          owner,
          "build",
          "",
          "default",
          0,
          null,
          0,
          3,
          "retry",
          false,
          "{}",
          "null",
          "{}",
          "{}",
          limit,
        ),
      async [Symbol.asyncDispose]() {
        await client.end();
      },
    };
  }

  test("the first version goes on beside one that has migrated its schema, and each runs the other's tasks", async () => {
    await using old = await openFirstVersion();
    const whole = async (id: string) => {
      expect(await old.create(id, null)).toMatchObject([{ id, status: "working" }]);
      const [row] = await old.run(
        "claim",
        ["build"],
        [""],
        [null],
        ["default"],
        null,
        1,
        "old",
        60_000,
        10,
        old.failures,
      );
      expect(String(row?.claimed)).toContain(id);
      expect(await old.run("renew", "old", [id, "unknown"], [1, 1], 60_000)).toMatchObject([
        { id, cancelRequested: false },
      ]);
      expect(await old.run("request_cancel", id, owner, 60_000)).toMatchObject([{ id, cancelRequested: true }]);
      expect(await old.run("renew", "old", [id], [1], 60_000)).toMatchObject([{ id, cancelRequested: true }]);
      expect(await old.run("finish", id, 1, "completed", null, "1")).toEqual([{ finish: true }]);
      expect(await old.run("sweep", 10, old.failures)).toMatchObject([{ timed_out: 0, more: false }]);
      expect(await old.run("purge", 10, 1_000)).toEqual([{ purged: [id], more: false }]);
    };
    await whole("before");
    const [left] = await old.create("left", null);
    await using store = openStore(old.schema);
    expect((await claimOne(store)).taskId).toBe(left?.id);
    await whole("after");
    const { id } = await create(store);
    const rows = await old.run("claim", ["build"], [""], [null], ["default"], null, 1, "old", 60_000, 10, old.failures);
    expect(rows.map(({ claimed }) => String(claimed))).toEqual([expect.stringContaining(id)]);
    // Whoever is of the first version and starts again is told.
    expect(await query(`SELECT max(version) > 2 AS newer FROM ${old.schema}.migration`)).toEqual([{ newer: true }]);
  });

  test("the first version parks, answers and sends beside one that knows of timeouts, and leaves them as they are", async () => {
    await using old = await openFirstVersion();
    const claimed = async () => {
      const names = [["build"], [""], [null], ["default"], null, 1, "old", 60_000, 10] as const;
      const [row] = await old.run("claim", ...names, old.failures);
      return String(row?.claimed);
    };
    const park = (id: string, epoch: number, keys: string[], events: string[]) =>
      old.run(
        "park",
        id,
        epoch,
        keys,
        keys.map(() => JSON.stringify(form)),
        events,
        [],
        [],
        false,
      );
    const answer = (id: string, key: string) => old.run("answer", id, owner, [key], ['{"action":"accept"}'], null);
    const whole = async (id: string) => {
      await old.create(id, null);
      expect(await claimed()).toContain(id);
      expect(await park(id, 1, ["a"], [])).toEqual([{ park: true }]);
      expect(await answer(id, "a")).toMatchObject([{ id, status: "working" }]);
      expect(await claimed()).toContain(id);
      expect(await park(id, 2, [], ["e"])).toEqual([{ park: true }]);
      expect(await old.run("send", id, "e", "1")).toEqual([{ send: true }]);
      expect(await claimed()).toContain(id);
      expect(await old.run("release", id, 3, 0, false, old.failures)).toEqual([{ release: true }]);
      expect(await claimed()).toContain(id);
      expect(await old.run("finish", id, 4, "completed", null, "1")).toEqual([{ finish: true }]);
    };
    await whole("before");
    const clock = manualClock(Date.now() - hour);
    await using store = openStore(old.schema, { clock });
    await store.nextDue();
    await whole("after");
    // Asked an hour ago, for a second: an answer is too late, whichever version takes it.
    const first = await begin(store);
    await store.park(first, waits({ inputs: [{ key: "a", request: form, timeoutMs: 1_000 }], events: [] }), false);
    expect(await answer(first.taskId, "a")).toMatchObject([{ status: "working" }]);
    clock.advance(hour);
    const { journal } = await claimOne(store);
    expect(journal.inputs.a?.response).toBe("timed out");
  });

  test("requests don't wait for a migration that takes longer than they may", async () => {
    const schema = freshSchema();
    const other = new Client(url);
    await other.connect();
    await other.query("SELECT pg_advisory_lock(hashtextextended($1, 0))", [`mcp-tasks "${schema}"`]);
    await using store = openStore(schema, { timeoutMs: 1_000 });
    await expect(create(store)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await other.end();
    await expect.poll(() => create(store).catch(() => null), { timeout: 15_000 }).toMatchObject({ status: "working" });
    expect(await claim(store)).toHaveLength(1);
  });
});
