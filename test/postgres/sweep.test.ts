import { afterAll, expect, test } from "vitest";
import { claim, create, leaseMs, owner } from "../../src/store/contract/kit.ts";
import { postgres } from "../../src/store/postgres/index.ts";
import { dropSchemas, query, url } from "./database.ts";
import { openRace } from "./race.ts";

afterAll(dropSchemas);

const nothing = { timedOut: 0, cancelled: 0, purged: [], more: false };

/** A store that a frozen one sweeps at, and tasks for it: some timed out, some lost, some to be purged. */
async function openHeld() {
  const race = await openRace();
  const { store, clock } = race;
  for (let n = 0; n < 5; n++) await create(store, { timeoutMs: 10, keepMs: null });
  const over = await create(store, { keepMs: 0 });
  await store.requestCancel(over.id, owner, 0);
  await create(store, { tool: "lost" });
  await claim(store, { tools: [{ name: "lost", version: "", limit: null }] });
  clock.advance(leaseMs);
  return { race, over };
}

test("one of those that sweep at the same time does it, and the others don't wait for it", async () => {
  const { race, over } = await openHeld();
  await using held = race;
  await held.hold();
  expect(await held.slow.sweep()).toEqual({ timedOut: 5, cancelled: 0, purged: [over.id], more: false });
  const stores = [1, 2, 3].map(() => postgres(url, { schema: held.schema, clock: held.clock }));
  expect(await Promise.all(stores.map((store) => store.sweep()))).toEqual([nothing, nothing, nothing]);
  await held.letGo();
  expect(await Promise.all(stores.map((store) => store.sweep()))).toEqual([nothing, nothing, nothing]);
  for (const store of stores) await store[Symbol.asyncDispose]();
});

test("when the one that sweeps dies in the middle, another one does it", async () => {
  const { race, over } = await openHeld();
  await using held = race;
  await held.hold();
  await held.slow.sweep();
  expect(await held.store.sweep()).toEqual(nothing);
  await held.die();
  expect(await held.store.sweep()).toEqual({ timedOut: 5, cancelled: 0, purged: [over.id], more: false });
  expect(await query(`SELECT FROM ${held.schema}.activation WHERE state = 'leased'`)).toEqual([]);
});

test("many that sweep again and again end and delete each task once", async () => {
  await using race = await openRace();
  const ids = new Set<string>();
  for (let n = 0; n < 60; n++) ids.add((await create(race.store, { timeoutMs: 1, keepMs: n % 3 })).id);
  const stores = [1, 2, 3, 4].map(() => postgres(url, { schema: race.schema, clock: race.clock }));
  const swept = [];
  for (let pass = 0; pass < 4; pass++) {
    race.clock.advance(1);
    // What one leaves to another is done when that one's turn is over.
    swept.push(...(await Promise.all(stores.flatMap((store) => [store.sweep(), store.sweep()]))));
    swept.push(await race.store.sweep());
  }
  expect(swept.reduce((sum, { timedOut }) => sum + timedOut, 0)).toBe(60);
  expect(swept.flatMap(({ purged }) => purged).toSorted()).toEqual([...ids].toSorted());
  for (const store of stores) await store[Symbol.asyncDispose]();
});
