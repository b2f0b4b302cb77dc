import assert from "node:assert/strict";
import type { Reuse } from "../store.ts";
import { begin, cases, claim, create, day, newTask, owner, read } from "./kit.ts";

const kept: Reuse = { key: "k", call: "c", scope: "kept" };
const unfinished: Reuse = { ...kept, scope: "unfinished" };

/** What a create does that may be a repeated one. */
export const reuseCases = cases({
  "a create with the key of a task returns that task as it is now, and stores nothing": async ({ store, clock }) => {
    for (const [n, reuse] of [kept, { ...unfinished, key: "other" }].entries()) {
      const { taskId, ...first } = await begin(store, { reuse, args: "1" });
      await store.setStatus({ taskId, ...first }, "half way", null);
      const now = await read(store, { taskId });
      clock.advance(1);
      const repeated = newTask({ reuse, args: "2", queue: "elsewhere" });
      assert.deepEqual(await store.create(repeated, null), now);
      assert.equal(await store.get(repeated.id, owner), undefined);
      assert.equal((await store.list({ limit: 100 })).length, n + 1);
    }
    assert.deepEqual(await claim(store, { queues: ["default", "elsewhere"], count: 10 }), []);
  },

  "side by side, one key makes one task": async ({ store }) => {
    const created = await Promise.all(Array.from({ length: 20 }, () => create(store, { reuse: kept })));
    assert.equal(new Set(created.map(({ id }) => id)).size, 1);
    assert.equal((await store.list({ limit: 100 })).length, 1);
  },

  "a key is its owner's own, and without one every task is another": async ({ store }) => {
    const tasks = [
      await create(store, { reuse: kept }),
      await create(store, { reuse: kept, owner: "bob" }),
      await create(store, { reuse: kept, owner: "" }),
      await create(store, { reuse: { ...kept, key: "k2" } }),
      await create(store),
      await create(store),
    ];
    assert.equal(new Set(tasks.map(({ id }) => id)).size, tasks.length);
  },

  "an owner and a key are never taken for another pair": async ({ store }) => {
    const first = await create(store, { owner: "a", reuse: { ...kept, key: "bc" } });
    assert.notEqual((await create(store, { owner: "ab", reuse: { ...kept, key: "c" } })).id, first.id);
    const lone = await create(store, { owner: "\ud800", reuse: kept });
    assert.notEqual((await create(store, { owner: "\ufffd", reuse: kept })).id, lone.id);
  },

  "a repeated create counts towards no limit": async ({ store }) => {
    const first = await store.create(newTask({ reuse: kept }), 1);
    assert.equal((await store.create(newTask({ reuse: kept }), 1)).id, first.id);
    await assert.rejects(store.create(newTask({ reuse: { ...kept, key: "new" } }), 1), { code: "TOO_MANY_TASKS" });
  },

  "a key with another call is refused, and its task and its neighbours are left alone": async ({ store }) => {
    const first = await create(store, { reuse: kept });
    const other = newTask({ reuse: { ...kept, call: "another" } });
    const [refused, made, again] = await Promise.allSettled([
      store.create(other, null),
      create(store),
      create(store, { reuse: kept }),
    ]);
    assert.equal(refused.status === "rejected" && (refused.reason as { code: unknown }).code, "IDEMPOTENCY_MISMATCH");
    assert.equal(made.status, "fulfilled");
    assert.deepEqual(again, { status: "fulfilled", value: first });
    assert.equal(await store.get(other.id, owner), undefined);
  },

  "with the scope unfinished, the key is free once the task is final, also for another call": async ({ store }) => {
    const first = await begin(store, { reuse: unfinished });
    await store.finish(first, { status: "completed", result: "{}" });
    const second = await create(store, { reuse: { ...unfinished, call: "another" } });
    assert.notEqual(second.id, first.taskId);
    assert.equal((await create(store, { reuse: { ...unfinished, call: "another" } })).id, second.id);
  },

  "with the scope unfinished, a task that was asked to end stands for nothing": async ({ store }) => {
    const first = await begin(store, { reuse: unfinished });
    await store.requestCancel(first.taskId, owner, day);
    assert.equal((await read(store, first)).status, "working");
    assert.notEqual((await create(store, { reuse: unfinished })).id, first.taskId);
  },

  "with the scope kept, the key stands for its task until that can be read no more": async ({ store, clock }) => {
    const first = await begin(store, { reuse: kept });
    await store.requestCancel(first.taskId, owner, day);
    assert.equal((await create(store, { reuse: kept })).id, first.taskId);
    await store.finish(first, { status: "completed", result: '{"content":[]}' });
    clock.advance(day - 1);
    assert.deepEqual(await create(store, { reuse: kept }), await read(store, first));
    clock.advance(1);
    const second = await create(store, { reuse: kept });
    assert.notEqual(second.id, first.taskId);
    // The sweep takes the first task, and not the key that is the second's by now.
    assert.deepEqual((await store.sweep()).purged, [first.taskId]);
    assert.equal((await create(store, { reuse: kept })).id, second.id);
  },
});
