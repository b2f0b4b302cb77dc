import { afterAll, expect, test } from "vitest";
import { begin, claim, leaseMs, owner, read } from "../../src/store/contract/kit.ts";
import { dropSchemas } from "./database.ts";
import { openRace } from "./race.ts";

afterAll(dropSchemas);

test.each(["sweep", "claim"] as const)("a lease that a %s is taking back can't be renewed any more", async (verb) => {
  await using race = await openRace();
  const { taskId, epoch } = await begin(race.store);
  race.clock.advance(leaseMs);
  await race.hold();
  await (verb === "sweep" ? race.slow.sweep() : claim(race.slow, { worker: "worker-2" }));
  const renewal = race.store.renew("worker-1", [{ taskId, epoch }], leaseMs);
  expect(await race.waits(renewal)).toBe(true);
  await race.letGo();
  expect(await renewal).toEqual({ lost: [{ taskId, epoch }], cancelled: [] });
});

test("a lease that was not taken back after all is renewed", async () => {
  await using race = await openRace();
  const { taskId, epoch } = await begin(race.store);
  race.clock.advance(leaseMs);
  await race.hold();
  await race.slow.sweep();
  const renewal = race.store.renew("worker-1", [{ taskId, epoch }], leaseMs);
  expect(await race.waits(renewal)).toBe(true);
  await race.letGo("ROLLBACK");
  expect(await renewal).toEqual({ lost: [], cancelled: [] });
  expect(await race.store.nextDue()).toBe(leaseMs);
});

test("a cancel that comes while a lease is renewed leaves its holder the grace", async () => {
  await using race = await openRace();
  const claimed = await begin(race.store);
  race.clock.advance(leaseMs);
  await race.hold();
  await race.slow.renew("worker-1", [claimed], leaseMs);
  const cancel = race.store.requestCancel(claimed.taskId, owner, 1_000);
  expect(await race.waits(cancel)).toBe(true);
  await race.letGo();
  expect(await cancel).toMatchObject({ status: "working", cancelRequested: true });
  const { taskId, epoch } = claimed;
  expect(await race.store.renew("worker-1", [claimed], leaseMs)).toEqual({ lost: [], cancelled: [{ taskId, epoch }] });
});

test("a renewal that waits for one lease holds no other", async () => {
  await using race = await openRace();
  const taken = await begin(race.store);
  race.clock.advance(1);
  const free = await begin(race.store);
  race.clock.advance(leaseMs - 1);
  await race.hold();
  await race.slow.sweep();
  const renewal = race.store.renew("worker-1", [free, taken], leaseMs);
  expect(await race.waits(renewal)).toBe(true);
  await race.slow.requestCancel(free.taskId, owner, 1_000);
  await race.letGo();
  expect(await renewal).toMatchObject({ lost: [{ taskId: taken.taskId }] });
  expect(await read(race.store, free)).toMatchObject({ status: "working", cancelRequested: true });
});
