import assert from "node:assert/strict";
import {
  asks,
  assertFenced,
  begin,
  beginAsking,
  cases,
  claim,
  claimOne,
  create,
  day,
  hour,
  leaseMs,
  owner,
  read,
  waits,
} from "./kit.ts";

/** What time brings about: timers, lease ends, timeouts, the end of a grace period, expiry. */
export const timeCases = cases({
  "a timer wakes its task when it is due, and not before": async ({ store, clock }) => {
    const claimed = await begin(store);
    await store.park(
      claimed,
      waits({
        timers: [
          { key: "long", dueInMs: hour },
          { key: "nap", dueInMs: 1_000 },
        ],
      }),
      false,
    );
    const wakeAt = clock.now() + 1_000;
    assert.equal((await read(store, claimed)).status, "working");
    assert.equal(await store.nextDue(), 1_000);
    clock.advance(999);
    assert.equal((await claim(store)).length, 0);
    assert.equal(await store.nextDue(), 1);
    clock.advance(1);
    const resumed = await claimOne(store);
    assert.ok(resumed.now >= wakeAt);
    assert.deepEqual(resumed.journal.steps, {
      long: { state: "started", wakeAt: wakeAt - 1_000 + hour },
      nap: { state: "started", wakeAt },
    });
  },

  "a timer that still runs keeps its instant; one that rang is set anew": async ({ store, clock }) => {
    const claimed = await begin(store);
    const both = (dueInMs: number) =>
      waits({
        timers: [
          { key: "long", dueInMs: hour },
          { key: "poll", dueInMs },
        ],
      });
    await store.park(claimed, both(10), false);
    const start = clock.now();
    clock.advance(10);
    await store.park(await claimOne(store), both(20), false);
    assert.equal(await store.nextDue(), 20);
    clock.advance(20);
    assert.deepEqual((await claimOne(store)).journal.steps, {
      long: { state: "started", wakeAt: start + hour },
      poll: { state: "started", wakeAt: start + 30 },
    });
  },

  "a timer whose step has ended wakes its task at once": async ({ store }) => {
    const claimed = await begin(store);
    await store.recordStep(claimed, "nap", { state: "done", value: "" });
    await store.park(claimed, waits({ timers: [{ key: "nap", dueInMs: hour }] }), false);
    assert.deepEqual((await claimOne(store)).journal.steps, { nap: { state: "done", value: "" } });
  },

  "waits may be longer than a timer of the machine can be": async ({ store, clock }) => {
    const claimed = await begin(store, { timeoutMs: 2 ** 40 });
    await store.park(claimed, waits({ timers: [{ key: "nap", dueInMs: 2 ** 33 }] }), false);
    assert.equal(await store.nextDue(), 2 ** 33);
    clock.advance(2 ** 33 - 1);
    assert.equal((await claim(store)).length, 0);
    clock.advance(1);
    await store.release(await claimOne(store), { delayMs: 2 ** 35, spend: true });
    assert.equal(await store.nextDue(), 2 ** 35);
    clock.advance(2 ** 35);
    await claimOne(store);
  },

  "a wait without length, or an endless one, is one": async ({ store }) => {
    const claimed = await begin(store);
    await store.park(claimed, waits({ timers: [{ key: "none", dueInMs: 0 }] }), false);
    const second = await claimOne(store);
    await store.park(second, waits({ timers: [{ key: "before", dueInMs: -5 }] }), false);
    const third = await claimOne(store);
    await store.park(third, waits({ timers: [{ key: "endless", dueInMs: Number.POSITIVE_INFINITY }] }), false);
    assert.equal((await claim(store)).length, 0);
  },

  "with a request for input, no timer wakes the task": async ({ store, clock }) => {
    const claimed = await begin(store);
    await store.park(claimed, { ...asks("size"), timers: [{ key: "nap", dueInMs: 10 }] }, false);
    assert.equal(await store.nextDue(), null);
    clock.advance(hour);
    assert.equal((await claim(store)).length, 0);
    await store.answer(claimed.taskId, owner, { size: { action: "accept" } }, null);
    assert.equal((await claimOne(store)).journal.steps.nap?.state, "started");
  },

  "what is due is due, wherever the clock goes": async ({ store, clock }) => {
    await create(store);
    clock.advance(-day);
    await claimOne(store);
    const parked = await beginAsking(store, ["a"]);
    clock.advance(-day);
    await store.answer(parked.taskId, owner, { a: { action: "accept" } }, null);
    await claimOne(store);
  },

  "the next instant is that of the first timer or lease end": async ({ store, clock }) => {
    assert.equal(await store.nextDue(), null);
    await begin(store);
    assert.equal(await store.nextDue(), leaseMs);
    await store.release(await begin(store), { delayMs: 50, spend: false });
    assert.equal(await store.nextDue(), 50);
    clock.advance(60);
    assert.equal(await store.nextDue(), 0);
  },

  "a task that takes longer than it may fails, whether queued, parked or running": async ({ store, clock }) => {
    const running = await begin(store, { timeoutMs: hour });
    const parked = await beginAsking(store, ["a"], { timeoutMs: hour });
    const sleeping = await begin(store, { timeoutMs: hour });
    await store.park(sleeping, waits({ timers: [{ key: "nap", dueInMs: day }] }), false);
    const queued = { taskId: (await create(store, { timeoutMs: hour })).id };
    const unbounded = { taskId: (await create(store)).id };
    clock.advance(hour - 1);
    assert.equal((await store.sweep()).timedOut, 0);
    await store.renew("worker-1", [running], leaseMs);
    clock.advance(1);
    assert.deepEqual(await store.sweep(), { timedOut: 4, cancelled: 0, purged: [], more: false });
    for (const claimed of [running, parked, sleeping, queued]) {
      const task = await read(store, claimed);
      assert.equal(task.status, "failed");
      assert.equal((JSON.parse(task.error ?? "") as { code: number }).code, -32603);
      assert.match(task.statusMessage ?? "", /longer/);
      assert.deepEqual(task.inputRequests, {});
      assert.equal(task.ttlMs, hour + day);
    }
    await assertFenced(store, running);
    assert.equal((await claimOne(store)).taskId, unbounded.taskId);
  },

  "a task whose time is up is not begun any more": async ({ store, clock }) => {
    const { id } = await create(store, { timeoutMs: 100 });
    clock.advance(100);
    assert.equal((await claim(store)).length, 0);
    assert.equal((await read(store, { taskId: id })).status, "failed");
  },

  "a running task that was asked to end is cancelled after the grace period": async ({ store, clock }) => {
    const claimed = await begin(store);
    await store.setStatus(claimed, "half done", null);
    await store.requestCancel(claimed.taskId, owner, 10_000);
    clock.advance(9_999);
    await store.renew("worker-1", [claimed], leaseMs);
    assert.equal((await store.sweep()).cancelled, 0);
    assert.equal((await read(store, claimed)).status, "working");
    clock.advance(1);
    assert.equal((await store.sweep()).cancelled, 1);
    const task = await read(store, claimed);
    assert.deepEqual([task.status, task.statusMessage], ["cancelled", "half done"]);
    await assertFenced(store, claimed);
    assert.equal((await claim(store)).length, 0);
  },

  "a sweep requeues what lost its worker": async ({ store, clock }) => {
    const claimed = await begin(store);
    clock.advance(leaseMs);
    await store.sweep();
    await assertFenced(store, claimed);
    assert.equal((await claimOne(store)).epoch, 2);
  },

  "a finished task can be read for as long as it was promised, and is then expired for every verb": async ({
    store,
    clock,
  }) => {
    const claimed = await begin(store, { keepMs: hour });
    clock.advance(500);
    await store.finish(claimed, { status: "completed", result: "1" });
    const { ttlMs, createdAt } = await read(store, claimed);
    assert.equal(ttlMs, 500 + hour);
    clock.advance(createdAt + ttlMs - 1 - clock.now());
    assert.equal((await store.sweep()).purged.length, 0);
    await read(store, claimed);
    clock.advance(1);
    const expired = async (who: string) => [
      await store.get(claimed.taskId, who),
      await store.answer(claimed.taskId, who, {}, null),
      await store.requestCancel(claimed.taskId, who, 0),
    ];
    assert.deepEqual(await expired(owner), ["expired", "expired", "expired"]);
    assert.deepEqual(await expired("bob"), [undefined, undefined, undefined]);
    assert.deepEqual(await store.sweep(), { timedOut: 0, cancelled: 0, purged: [claimed.taskId], more: false });
    assert.deepEqual(await expired(owner), ["expired", "expired", "expired"]);
    assert.deepEqual(await expired("bob"), [undefined, undefined, undefined]);
    assert.equal(await store.send(claimed.taskId, "paid", "1"), false);
    assert.deepEqual(await store.list({ limit: 9 }), []);
  },

  "a purged task is remembered as long again, at least an hour, and then forgotten": async ({ store, clock }) => {
    for (const [keepMs, memory] of [
      [0, hour],
      [3 * hour, 3 * hour],
    ] as const) {
      const claimed = await begin(store, { keepMs });
      await store.finish(claimed, { status: "completed", result: "1" });
      clock.advance(keepMs);
      assert.equal((await store.sweep()).purged.length, 1);
      clock.advance(memory - 1);
      await store.sweep();
      assert.equal(await store.get(claimed.taskId, owner), "expired");
      clock.advance(1);
      await store.sweep();
      assert.equal(await store.get(claimed.taskId, owner), undefined);
    }
  },

  "an unfinished task is never purged, nor one that is kept for ever": async ({ store, clock }) => {
    const parked = await beginAsking(store, ["a"], { keepMs: 0 });
    const done = await begin(store, { keepMs: null });
    await store.finish(done, { status: "completed", result: "1" });
    clock.advance(1_000 * day);
    assert.equal((await store.sweep()).purged.length, 0);
    assert.equal((await read(store, parked)).status, "input_required");
    assert.equal((await read(store, done)).result, "1");
  },

  "a long list of what is over is swept in rounds": async ({ store, clock }) => {
    await Promise.all(Array.from({ length: 1_200 }, () => create(store, { timeoutMs: 1, keepMs: 1 })));
    clock.advance(1);
    const rounds = async () => {
      const total = { timedOut: 0, purged: 0 };
      for (let round = 1; ; round++) {
        const { timedOut, purged, more } = await store.sweep();
        assert.ok(timedOut <= 500 && purged.length <= 500);
        total.timedOut += timedOut;
        total.purged += purged.length;
        if (!more) return total;
        assert.ok(round < 20);
      }
    };
    assert.deepEqual(await rounds(), { timedOut: 1_200, purged: 0 });
    clock.advance(1);
    assert.deepEqual(await rounds(), { timedOut: 0, purged: 1_200 });
    assert.deepEqual(await store.list({ limit: 1 }), []);
  },
});
