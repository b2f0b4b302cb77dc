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
  form,
  hour,
  leaseMs,
  newTask,
  owner,
  read,
  tool,
  waits,
} from "./kit.ts";

const attemptOf = ({ taskId, epoch }: { taskId: string; epoch: number }) => ({ taskId, epoch });

/** What workers do: claim, renew, record, report, park, finish, release. */
export const workerCases = cases({
  "a claim leases a task under a new epoch, and gives all that is needed to run it": async ({ store, clock }) => {
    const task = newTask({ args: '{"ref":"v2"}', answers: '{"a":1}', auth: '{"sub":"x"}', timeoutMs: hour });
    const created = await store.create(task, null);
    clock.advance(5);
    const claimed = await claimOne(store);
    assert.deepEqual(claimed, {
      taskId: task.id,
      epoch: 1,
      task: { ...created, epoch: 1, activation: "leased" },
      args: task.args,
      answers: task.answers,
      client: task.client,
      auth: task.auth,
      attempt: 1,
      deadline: created.createdAt + hour,
      now: clock.now(),
      journal: { steps: {}, inputs: {}, events: {} },
    });
    assert.equal((await claim(store)).length, 0);
  },

  "each task is claimed once, however many claim at once": async ({ store }) => {
    await Promise.all(Array.from({ length: 40 }, () => create(store)));
    const claims = await Promise.all(
      Array.from({ length: 30 }, (_, n) => claim(store, { worker: `worker-${n}`, count: 2 })),
    );
    const ids = claims.flat().map(({ taskId }) => taskId);
    assert.equal(ids.length, 40);
    assert.equal(new Set(ids).size, 40);
  },

  "a worker takes only its queues and the versions of tools that it knows": async ({ store }) => {
    await create(store, { queue: "gpu" });
    await create(store, { tool: "other" });
    await create(store, { version: "2" });
    assert.equal((await claim(store, { count: 9 })).length, 0);
    assert.equal((await claim(store, { count: 9, tools: [] })).length, 0);
    assert.equal((await claim(store, { count: 9, queues: [] })).length, 0);
    const both = [tool, { ...tool, version: "2" }];
    assert.equal((await claimOne(store, { tools: both })).task.version, "2");
    assert.equal((await claim(store, { queues: ["cpu", "gpu"], count: 9 })).length, 1);
    assert.equal((await claimOne(store, { tools: [{ ...tool, name: "other" }] })).task.tool, "other");
  },

  "higher priority runs first, then the oldest": async ({ store }) => {
    const low = await create(store, { priority: -1 });
    const first = await create(store);
    const second = await create(store);
    const high = await create(store, { priority: 5 });
    const claimed = await claim(store, { count: 9 });
    assert.deepEqual(
      claimed.map(({ taskId }) => taskId),
      [high.id, first.id, second.id, low.id],
    );
  },

  "a task that is resumed goes before newer ones": async ({ store }) => {
    const old = await beginAsking(store, ["a"]);
    await create(store);
    await store.answer(old.taskId, owner, { a: { action: "accept" } }, null);
    assert.equal((await claimOne(store)).taskId, old.taskId);
  },

  "one owner's many tasks don't keep another one waiting": async ({ store }) => {
    for (let n = 0; n < 50; n++) await create(store, { owner: "many" });
    const served: string[] = [];
    for (let n = 0; n < 3; n++) {
      // A new task each time its last one is done: neither of the two starves.
      await create(store, { owner: "few" });
      for (let m = 0; m < 2; m++) {
        const claimed = await claimOne(store);
        served.push(claimed.task.owner);
        await store.finish(claimed, { status: "completed", result: "1" });
      }
    }
    assert.deepEqual(served.toSorted(), ["few", "few", "few", "many", "many", "many"]);
  },

  "owners take turns, over all their tools": async ({ store }) => {
    const tools = [tool, { ...tool, name: "test" }];
    for (const who of ["a", "b", "c"]) {
      for (let n = 0; n < 2; n++) for (const { name } of tools) await create(store, { owner: who, tool: name });
    }
    const served = (await claim(store, { tools, count: 12 })).map(({ task }) => task.owner);
    for (let n = 0; n < 12; n += 3) assert.deepEqual(served.slice(n, n + 3).toSorted(), ["a", "b", "c"]);
  },

  "limits of a tool and of an owner count what runs, over all workers": async ({ store }) => {
    const limited = { tools: [{ ...tool, limit: 2 }], count: 9 };
    for (let n = 0; n < 4; n++) await create(store);
    const [first] = await claim(store, { ...limited, count: 1, worker: "worker-2" });
    assert.equal((await claim(store, limited)).length, 1);
    assert.equal((await claim(store, limited)).length, 0);
    assert.ok(first !== undefined);
    await store.finish(first, { status: "completed", result: "1" });
    assert.equal((await claim(store, limited)).length, 1);

    for (let n = 0; n < 3; n++) await create(store, { owner: "bob", tool: "test" });
    const test = { tools: [{ ...tool, name: "test" }], ownerLimit: 2, count: 9 };
    assert.equal((await claim(store, test)).length, 2);
    assert.equal((await claim(store, test)).length, 0);
    await create(store, { owner: "carol", tool: "test" });
    assert.equal((await claim(store, test)).length, 1);
  },

  "a lease that is renewed is kept, one that isn't is taken over": async ({ store, clock }) => {
    const claimed = await begin(store);
    clock.advance(leaseMs - 1);
    assert.deepEqual(await store.renew("worker-1", [attemptOf(claimed)], leaseMs), { lost: [], cancelled: [] });
    clock.advance(leaseMs - 1);
    assert.equal((await claim(store)).length, 0);
    clock.advance(1);
    const second = await claimOne(store, { worker: "worker-2" });
    assert.deepEqual([second.epoch, second.attempt], [2, 2]);
    await assertFenced(store, claimed);
    assert.equal(await store.setStatus(second, "goes on", null), true);
  },

  "no worker but its own renews a lease, and unknown attempts are lost": async ({ store }) => {
    const claimed = attemptOf(await begin(store));
    const unknown = { taskId: newTask().id, epoch: 1 };
    const later = { ...claimed, epoch: 2 };
    assert.deepEqual(await store.renew("worker-2", [claimed], leaseMs), { lost: [claimed], cancelled: [] });
    assert.deepEqual(await store.renew("worker-1", [unknown, claimed, later], leaseMs), {
      lost: [unknown, later],
      cancelled: [],
    });
  },

  "an attempt whose epoch is past changes nothing, by any verb": async ({ store }) => {
    const first = await begin(store);
    await store.release(first, { delayMs: 0, spend: false });
    await assertFenced(store, first);
    const second = await claimOne(store);
    await assertFenced(store, first);
    await assertFenced(store, { ...second, epoch: second.epoch + 1 });
    await store.park(second, asks("a"), false);
    await assertFenced(store, second);
    await store.answer(second.taskId, owner, { a: { action: "accept" } }, null);
    await assertFenced(store, second);
    const third = await claimOne(store);
    await store.finish(third, { status: "completed", result: "1" });
    await assertFenced(store, third);
  },

  "what steps record is there at the next attempt": async ({ store }) => {
    const claimed = await begin(store);
    const value = '{"zeta":"\\u0000\\ud800","alpha":null}';
    assert.equal(await store.startStep(claimed, "once"), true);
    assert.equal(await store.startStep(claimed, "fetch"), true);
    assert.equal(await store.recordStep(claimed, "fetch", { state: "done", value }), true);
    assert.equal(await store.recordStep(claimed, "build", { state: "failed", error: '{"message":"no"}' }), true);
    assert.equal(await store.recordStep(claimed, "nothing", { state: "done", value: "" }), true);
    const steps = {
      once: { state: "started", wakeAt: null },
      fetch: { state: "done", value },
      build: { state: "failed", error: '{"message":"no"}' },
      nothing: { state: "done", value: "" },
    };
    assert.deepEqual((await store.journal(claimed))?.steps, steps);
    await store.release(claimed, { delayMs: 0, spend: false });
    assert.deepEqual((await claimOne(store)).journal.steps, steps);
  },

  "how a step ended stays": async ({ store }) => {
    const claimed = await begin(store);
    await store.recordStep(claimed, "a", { state: "done", value: "1" });
    await store.recordStep(claimed, "a", { state: "done", value: "2" });
    await store.recordStep(claimed, "a", { state: "failed", error: "{}" });
    await store.startStep(claimed, "a");
    assert.deepEqual((await store.journal(claimed))?.steps, { a: { state: "done", value: "1" } });
  },

  "a status is seen at once, in one clean line of limited length": async ({ store, clock }) => {
    const claimed = await begin(store);
    const before = await read(store, claimed);
    clock.advance(10);
    await store.setStatus(claimed, "building\r\n\u0000\u001b[31mstage \ud800", { progress: 1, total: 3 });
    const after = await read(store, claimed);
    assert.equal(after.statusMessage, "building [31mstage \ufffd");
    assert.deepEqual(after.progress, { progress: 1, total: 3 });
    assert.ok(after.rev > before.rev && after.updatedAt === clock.now() && after.turnedAt === before.turnedAt);
    await store.setStatus(claimed, "😀".repeat(2_000), null);
    const long = await read(store, claimed);
    assert.equal(long.statusMessage?.isWellFormed(), true);
    assert.ok(long.statusMessage.length <= 1_000 && long.statusMessage.length > 990);
    assert.equal(long.progress, null);
    await store.setStatus(claimed, null, { progress: 0.5 });
    assert.deepEqual((await read(store, claimed)).progress, { progress: 0.5 });
    assert.equal((await read(store, claimed)).statusMessage, null);
  },

  "the same status again is no change": async ({ store, clock }) => {
    const claimed = await begin(store);
    await store.setStatus(claimed, "building", { progress: 1 });
    const before = await read(store, claimed);
    clock.advance(10);
    assert.equal(await store.setStatus(claimed, "building", { progress: 1 }), true);
    assert.deepEqual(await read(store, claimed), before);
  },

  "a task that ends carries its outcome, and only that": async ({ store, clock }) => {
    const done = await begin(store);
    await store.setStatus(done, "nearly", null);
    clock.advance(10);
    await store.finish(done, { status: "completed", result: '{"content":[]}' });
    const completed = await read(store, done);
    assert.deepEqual(
      [completed.status, completed.result, completed.error, completed.statusMessage, completed.turnedAt],
      ["completed", '{"content":[]}', null, "nearly", clock.now()],
    );
    const bad = await begin(store);
    await store.finish(bad, { status: "failed", error: '{"code":-32603}', statusMessage: "It\nbroke." });
    const failed = await read(store, bad);
    assert.deepEqual(
      [failed.status, failed.result, failed.error, failed.statusMessage],
      ["failed", null, '{"code":-32603}', "It broke."],
    );
    for (const [given, kept] of [
      [null, "so far"],
      ["Stopped.", "Stopped."],
    ] as const) {
      const stopped = await begin(store);
      await store.setStatus(stopped, "so far", null);
      await store.finish(stopped, { status: "cancelled", statusMessage: given });
      const cancelled = await read(store, stopped);
      assert.deepEqual([cancelled.status, cancelled.statusMessage, cancelled.result], ["cancelled", kept, null]);
    }
  },

  "a finish that is repeated, or comes together with others, ends the task once": async ({ store }) => {
    const claimed = await begin(store);
    const results = await Promise.all(
      ["1", "2", "3"].map((result) => store.finish(claimed, { status: "completed", result })),
    );
    assert.deepEqual(results, [true, false, false]);
    assert.equal((await read(store, claimed)).result, "1");
  },

  "verbs called together take effect in their order": async ({ store }) => {
    const claimed = await begin(store);
    await Promise.all([
      store.recordStep(claimed, "a", { state: "done", value: "1" }),
      store.setStatus(claimed, "one", null),
      store.setStatus(claimed, "two", null),
      store.park(claimed, asks("size"), false),
      store.answer(claimed.taskId, owner, { size: { action: "accept" } }, null),
    ]);
    const resumed = await claimOne(store);
    // The last answer cleared the message that was set before it.
    assert.deepEqual([resumed.task.statusMessage, resumed.task.rev], [null, claimed.task.rev + 4]);
    assert.deepEqual(Object.keys(resumed.journal.steps), ["a"]);
  },

  "a parked task leaves the worker free, with what it asks to be read": async ({ store, clock }) => {
    const claimed = await begin(store);
    clock.advance(10);
    assert.equal(await store.park(claimed, asks("size", "color"), false), true);
    const task = await read(store, claimed);
    assert.deepEqual([task.status, task.turnedAt], ["input_required", clock.now()]);
    assert.deepEqual(task.inputRequests, { size: form, color: form });
    clock.advance(hour);
    assert.equal((await claim(store, { tools: [{ ...tool, limit: 1 }] })).length, 0);
    assert.equal(await store.nextDue(), null);
  },

  "what was asked before is not asked anew": async ({ store }) => {
    const first = await beginAsking(store, ["a"]);
    await store.answer(first.taskId, owner, { a: { action: "accept", n: 1 } }, null);
    const second = await claimOne(store);
    const other = { ...form, params: { message: "Another?" } };
    await store.park(second, waits({ inputs: [{ key: "a", request: other }] }), false);
    const third = await claimOne(store);
    assert.deepEqual(third.journal.inputs, { a: { request: form, response: { action: "accept", n: 1 } } });
    await store.park(third, asks("a", "b"), false);
    assert.deepEqual((await read(store, third)).inputRequests, { b: form });
    await store.answer(third.taskId, owner, { b: { action: "decline" } }, null);
    assert.equal((await claimOne(store)).taskId, first.taskId);
  },

  "a task that waits for nothing is queued again": async ({ store }) => {
    const claimed = await begin(store);
    await store.park(claimed, waits({}), false);
    assert.equal((await claimOne(store)).epoch, 2);
  },

  "a park after the request to cancel cancels": async ({ store }) => {
    for (const hold of [false, true]) {
      const claimed = await begin(store);
      await Promise.all([store.requestCancel(claimed.taskId, owner, hour), store.park(claimed, asks("size"), hold)]);
      assert.equal((await read(store, claimed)).status, "cancelled");
      await assertFenced(store, claimed);
    }
  },

  "a cancel after the park cancels": async ({ store }) => {
    const claimed = await begin(store);
    await Promise.all([store.park(claimed, asks("size"), false), store.requestCancel(claimed.taskId, owner, hour)]);
    assert.equal((await read(store, claimed)).status, "cancelled");
  },

  "an attempt that holds its waits keeps its lease, and reads the answers": async ({ store, clock }) => {
    const claimed = await begin(store, { recovery: "fail" });
    assert.equal(await store.park(claimed, asks("a"), true), true);
    assert.equal(await store.park(claimed, { ...asks("b"), events: [{ key: "paid" }] }, true), true);
    const asking = await read(store, claimed);
    assert.deepEqual([asking.status, Object.keys(asking.inputRequests)], ["input_required", ["a", "b"]]);
    assert.equal((await claim(store)).length, 0);
    clock.advance(leaseMs - 1);
    assert.deepEqual((await store.renew("worker-1", [attemptOf(claimed)], leaseMs)).lost, []);
    await store.answer(claimed.taskId, owner, { a: { action: "accept" } }, null);
    assert.equal((await read(store, claimed)).status, "input_required");
    await store.answer(claimed.taskId, owner, { b: { action: "decline" } }, null);
    await store.send(claimed.taskId, "paid", "1");
    assert.equal((await read(store, claimed)).status, "working");
    assert.equal((await claim(store)).length, 0);
    const journal = await store.journal(claimed);
    assert.deepEqual(journal?.inputs.a?.response, { action: "accept" });
    assert.deepEqual(journal?.inputs.b?.response, { action: "decline" });
    assert.deepEqual(journal?.events, { paid: "1" });
    assert.equal(await store.finish(claimed, { status: "completed", result: "1" }), true);
  },

  "a held wait whose worker is lost is another attempt's, if its tool may run again, and its question stays open":
    async ({ store, clock }) => {
      const claimed = await begin(store);
      await store.park(claimed, asks("a"), true);
      clock.advance(leaseMs);
      const second = await claimOne(store);
      assert.deepEqual(
        [second.epoch, second.task.status, second.task.inputRequests],
        [2, "input_required", { a: form }],
      );
      await assertFenced(store, claimed);
      await store.answer(claimed.taskId, owner, { a: { action: "accept" } }, null);
      await store.park(second, asks("a"), false);
      assert.deepEqual((await claimOne(store)).journal.inputs.a?.response, { action: "accept" });
    },

  "a task held for input that is handed back is taken by another attempt": async ({ store }) => {
    const claimed = await begin(store);
    await store.park(claimed, asks("a"), true);
    await store.release(claimed, { delayMs: 0, spend: false });
    await store.park(await claimOne(store), asks("a"), false);
    assert.equal((await claim(store)).length, 0);
    await store.answer(claimed.taskId, owner, { a: { action: "accept" } }, null);
    await claimOne(store);
  },

  "an attempt that is handed back unspent doesn't count": async ({ store }) => {
    await create(store, { attempts: 1 });
    for (let n = 0; n < 5; n++) {
      const claimed = await claimOne(store);
      assert.equal(claimed.attempt, 1);
      await store.release(claimed, { delayMs: 0, spend: false });
    }
  },

  "a spent attempt counts, and its failed steps are tried again": async ({ store, clock }) => {
    const first = await begin(store, { attempts: 2 });
    await store.recordStep(first, "good", { state: "done", value: "1" });
    await store.recordStep(first, "bad", { state: "failed", error: "{}" });
    await store.startStep(first, "begun");
    assert.equal(await store.release(first, { delayMs: 1_000, spend: true }), true);
    assert.equal((await claim(store)).length, 0);
    clock.advance(1_000);
    const second = await claimOne(store);
    assert.equal(second.attempt, 2);
    assert.deepEqual(Object.keys(second.journal.steps), ["good", "begun"]);
    await store.recordStep(second, "bad", { state: "failed", error: "{}" });
    await store.release(second, { delayMs: 0, spend: true });
    assert.equal((await claim(store)).length, 0);
    assert.equal((await read(store, first)).status, "failed");
  },

  "a task whose attempts die one after the other is given up": async ({ store, clock }) => {
    const { id } = await create(store, { attempts: 3 });
    const other = await create(store);
    for (let n = 1; n <= 3; n++) {
      const claimed = await claimOne(store);
      assert.deepEqual([claimed.taskId, claimed.attempt], [id, n]);
      clock.advance(leaseMs);
    }
    assert.equal((await claimOne(store)).taskId, other.id);
    const task = await read(store, { taskId: id });
    assert.equal(task.status, "failed");
    const error = JSON.parse(task.error ?? "") as { code: number; message: string };
    assert.equal(error.code, -32603);
    assert.match(error.message, /tried 3 times/);
    assert.equal(task.statusMessage, error.message);
    await assertFenced(store, { taskId: id, epoch: 3 });
  },

  "progress makes the attempts count anew": async ({ store, clock }) => {
    const { id } = await create(store, { attempts: 2 });
    for (let n = 0; n < 6; n++) {
      const claimed = await claimOne(store);
      assert.equal(claimed.attempt, 1);
      if (n % 2 === 0) await store.recordStep(claimed, `step ${n}`, { state: "done", value: "1" });
      else await store.park(claimed, waits({ timers: [{ key: `nap ${n}`, dueInMs: 1 }] }), false);
      clock.advance(leaseMs);
    }
    assert.equal((await read(store, { taskId: id })).status, "working");
  },

  "a step that failed is no progress": async ({ store, clock }) => {
    await create(store, { attempts: 2 });
    for (const attempt of [1, 2]) {
      const claimed = await claimOne(store);
      assert.equal(claimed.attempt, attempt);
      await store.recordStep(claimed, "bad", { state: "failed", error: "{}" });
      clock.advance(leaseMs);
    }
    assert.equal((await claim(store)).length, 0);
  },

  "a tool that must not run twice fails when its attempt is interrupted": async ({ store, clock }) => {
    const claimed = await begin(store, { recovery: "fail" });
    clock.advance(leaseMs);
    assert.equal((await claim(store)).length, 0);
    const task = await read(store, claimed);
    assert.equal(task.status, "failed");
    assert.match(task.statusMessage ?? "", /interrupted/);
    await assertFenced(store, claimed);
  },

  "a running task that was asked to end and lost its worker is cancelled": async ({ store, clock }) => {
    const claimed = await begin(store, { recovery: "fail" });
    await store.requestCancel(claimed.taskId, owner, hour);
    clock.advance(leaseMs);
    assert.equal((await claim(store)).length, 0);
    assert.equal((await read(store, claimed)).status, "cancelled");
  },

  "a task asked to end that is handed back is cancelled": async ({ store }) => {
    const claimed = await begin(store);
    await store.requestCancel(claimed.taskId, owner, hour);
    assert.equal(await store.release(claimed, { delayMs: 0, spend: false }), true);
    assert.equal((await read(store, claimed)).status, "cancelled");
  },

  "epochs and revisions only rise": async ({ store, clock }) => {
    const { id } = await create(store, { attempts: 100 });
    let last = await read(store, { taskId: id });
    const rises = async (visibly: boolean) => {
      const now = await read(store, { taskId: id });
      assert.ok(now.epoch >= last.epoch && (visibly ? now.rev > last.rev : now.rev >= last.rev));
      assert.ok(now.updatedAt >= last.updatedAt);
      last = now;
    };
    for (let n = 0; n < 3; n++) {
      const claimed = await claimOne(store);
      await rises(false);
      await store.setStatus(claimed, `round ${n}`, null);
      await rises(true);
      // A clock that is set back takes nothing with it.
      clock.advance(-hour);
      await store.park(claimed, asks(`${n}`), false);
      await rises(true);
      await store.answer(id, owner, { [n]: { action: "accept" } }, null);
      await rises(true);
    }
    await store.requestCancel(id, owner, 0);
    await rises(true);
  },
});
