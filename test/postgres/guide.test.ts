import { readFileSync } from "node:fs";
import path from "node:path";
import { Client } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { postgres } from "mcp-tasks/postgres";
import { asks, claimOne, create } from "../../src/store/contract/kit.ts";
import { freshDatabase } from "./database.ts";

const guide = readFileSync(path.join(import.meta.dirname, "../../docs/guide/scaling.md"), "utf8");
const queries = [...guide.matchAll(/```sql\n([\s\S]*?)```/g)]
  .flatMap(([, block = ""]) => block.split(";"))
  .map((text) => text.trim())
  .filter((text) => text !== "")
  .map((text) => ({ name: /^-- (.*)/.exec(text)?.[1] ?? text, text }));

let database: Awaited<ReturnType<typeof freshDatabase>>;
let client: Client;

/** One task of each kind that the queries look for. */
beforeAll(async () => {
  database = await freshDatabase();
  await using store = postgres(database.url);
  await create(store);
  await store.finish(await claimOne(store), { status: "completed", result: "1" });
  await create(store);
  await store.park(await claimOne(store), asks("size"), false);
  await create(store, { attempts: 5 });
  for (const _ of [1, 2]) await store.release(await claimOne(store), { delayMs: 0, spend: true });
  await claimOne(store, { leaseMs: 1 });
  await create(store);
  client = new Client(database.url);
  await client.connect();
});
afterAll(async () => {
  await client.end();
  await database.drop();
});

test("the guide to scaling has queries", () => expect(queries.length).toBeGreaterThan(5));

test.each(queries)("$name", async ({ text }) => {
  const { rows } = await client.query(text);
  expect(rows.length).toBeGreaterThan(0);
});
