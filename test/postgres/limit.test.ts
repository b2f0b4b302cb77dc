import { afterAll, expect, test } from "vitest";
import { create, newTask } from "../../src/store/contract/kit.ts";
import { expectExactLimit } from "../store/limit.ts";
import { dropSchemas, freshSchema, openStore, query } from "./database.ts";
import { openRace } from "./race.ts";

afterAll(dropSchemas);

/** How many may be under way: nearer to the limit than this, creates take turns. */
async function connections(): Promise<number> {
  const [row] = await query<{ max_connections: string }>("SHOW max_connections");
  return Number(row?.max_connections);
}

test("the limit of unfinished tasks is exact, whichever process creates and ends", async () => {
  const schema = freshSchema();
  await using one = openStore(schema);
  await using two = openStore(schema);
  await expectExactLimit([one, two], 2 * (await connections()) + 150, 150);
  // So far from the limit that they were counted once.
  expect(await query(`SELECT owner FROM ${schema}.counted`)).toHaveLength(1);
});

test("a create near the limit waits for one that began further off", async () => {
  await using race = await openRace();
  const limit = (await connections()) + 20;
  // It makes its owner's place in the line, too, which others would wait for.
  await create(race.store);
  await race.hold();
  await race.slow.create(newTask(), limit);
  for (let n = 0; n < 19; n++) await race.store.create(newTask(), limit);
  const near = race.store.create(newTask(), limit);
  expect(await race.waits(near)).toBe(true);
  await race.letGo();
  await near;
});

test("what an owner was counted to is forgotten in time", async () => {
  const schema = freshSchema();
  await using store = openStore(schema);
  await create(store);
  await query(`INSERT INTO ${schema}.counted VALUES ('old', 100, -100000), ('new', 100, 1)`);
  await store.sweep();
  expect(await query(`SELECT owner FROM ${schema}.counted`)).toEqual([{ owner: "new" }]);
});
