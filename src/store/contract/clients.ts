import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import type { Task } from "../store.ts";
import {
  asks,
  begin,
  beginAsking,
  cases,
  claim,
  claimOne,
  create,
  day,
  form,
  hour,
  newTask,
  owner,
  read,
  waits,
} from "./kit.ts";

/** Text that a careless store would change: control characters, half a surrogate pair, an order of keys. */
const hostileText =
  '{"zeta":"\\u0000","alpha":"\\ud800","mm":"é😀\\"\\\\","__proto__":{"1":1.0,"0":1e400},"n":12345678901234567890}';
const large = JSON.stringify({ text: "é".repeat(500_000) });

/** What any replica does: create, get, answer, send, requestCancel, watch, page, list. */
export const clientCases = cases({
  "a census counts unfinished tasks by tool and status, and what each queue holds that is due": async ({
    store,
    clock,
  }) => {
    assert.deepEqual(await store.census(), { live: [], queues: [] });
    await store.finish(await begin(store), { status: "completed", result: "{}" });
    await beginAsking(store, ["size"]);
    const napping = await begin(store, { queue: "default", tool: "\ud800" });
    await store.park(napping, waits({ timers: [{ key: "nap", dueInMs: 500 }] }), false);
    await create(store, { queue: "slow" });
    clock.advance(499);
    await create(store, { queue: "slow" });
    const live = [
      { tool: "\ud800", status: "working", count: 1 },
      { tool: "build", status: "input_required", count: 1 },
      { tool: "build", status: "working", count: 2 },
    ];
    const byName = (a: object, b: object) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);
    const before = await store.census();
    assert.deepEqual(before.live.toSorted(byName), live.toSorted(byName));
    assert.deepEqual(before.queues, [{ queue: "slow", count: 2, oldestMs: 499 }]);
    clock.advance(11);
    assert.deepEqual((await store.census()).queues.toSorted(byName), [
      { queue: "default", count: 1, oldestMs: 10 },
      { queue: "slow", count: 2, oldestMs: 510 },
    ]);
  },

  "a new task is working, and is read as it was created": async ({ store, clock }) => {
    const task = newTask({ tool: "render", version: "2" });
    const created = await store.create(task, null);
    const now = clock.now();
    assert.deepEqual(created, {
      id: task.id,
      owner,
      tool: "render",
      version: "2",
      status: "working",
      statusMessage: null,
      progress: null,
      createdAt: now,
      updatedAt: now,
      turnedAt: now,
      ttlMs: null,
      rev: created.rev,
      epoch: 0,
      cancelRequested: false,
      activation: "queued",
      inputRequests: {},
      result: null,
      error: null,
    } satisfies Task);
    assert.deepEqual(await store.get(task.id, owner), created);
  },

  "reading changes nothing": async ({ store, clock }) => {
    const { taskId } = await begin(store);
    const first = await read(store, { taskId });
    clock.advance(hour);
    assert.deepEqual(await read(store, { taskId }), first);
  },

  "tasks created side by side are all there": async ({ store }) => {
    const created = await Promise.all(Array.from({ length: 50 }, () => create(store)));
    const found = await Promise.all(created.map(({ id }) => store.get(id, owner)));
    assert.deepEqual(found, created);
  },

  "an id is used once, and a create that fails leaves its neighbours alone": async ({ store }) => {
    const task = newTask({ args: "1" });
    const results = await Promise.allSettled([
      create(store),
      store.create(task, null),
      store.create({ ...task, args: "2" }, null),
      create(store),
    ]);
    assert.deepEqual(
      results.map(({ status }) => status),
      ["fulfilled", "fulfilled", "rejected", "fulfilled"],
    );
    const claimed = await claim(store, { count: 10 });
    assert.equal(claimed.length, 3);
    assert.equal(claimed.find(({ taskId }) => taskId === task.id)?.args, "1");
  },

  "an owner has at most so many unfinished tasks, and others don't count": async ({ store }) => {
    const first = await store.create(newTask(), 2);
    await store.create(newTask({ owner: "bob" }), 2);
    await store.create(newTask(), 2);
    const refused = newTask();
    await assert.rejects(store.create(refused, 2), { code: "TOO_MANY_TASKS" });
    assert.equal(await store.get(refused.id, owner), undefined);
    await store.create(newTask({ owner: "bob" }), 2);
    await store.requestCancel(first.id, owner, 0);
    await store.create(newTask(), 2);
  },

  "side by side, no more tasks than allowed are created": async ({ store }) => {
    const results = await Promise.allSettled(Array.from({ length: 10 }, () => store.create(newTask(), 3)));
    assert.equal(results.filter(({ status }) => status === "fulfilled").length, 3);
  },

  "payloads come back to the character": async ({ store }) => {
    for (const text of [hostileText, large]) {
      const claimed = await begin(store, { args: text, answers: text, auth: text });
      assert.deepEqual([claimed.args, claimed.answers, claimed.auth], [text, text, text]);
      await store.finish(claimed, { status: "completed", result: text });
      assert.equal((await read(store, claimed)).result, text);
      const failed = await begin(store);
      await store.finish(failed, { status: "failed", error: text, statusMessage: "no" });
      assert.equal((await read(store, failed)).error, text);
    }
  },

  "the client's capabilities come back as they were": async ({ store }) => {
    const client = {
      tasks: true,
      elicitation: { form: true, url: false },
      sampling: { basic: true, tools: false },
      roots: true,
    };
    assert.deepEqual((await begin(store, { client })).client, client);
  },

  "to anybody but its owner a task is absent, for every verb that takes an owner": async ({ store }) => {
    const parked = await beginAsking(store, ["size"]);
    const ended = await begin(store);
    await store.finish(ended, { status: "completed", result: "{}" });
    for (const { taskId } of [parked, ended]) {
      for (const stranger of ["bob", "", "ALICE", "alice ", "alice\0", "%"]) {
        assert.equal(await store.get(taskId, stranger), undefined);
        assert.equal(await store.answer(taskId, stranger, { size: { action: "accept" } }, "refused"), undefined);
        assert.equal(await store.requestCancel(taskId, stranger, 0), undefined);
      }
    }
    const task = await read(store, parked);
    assert.deepEqual([task.status, task.statusMessage, task.cancelRequested], ["input_required", null, false]);
  },

  "owners that differ only in what UTF-8 can't hold are different": async ({ store }) => {
    const { id } = await create(store, { owner: "\ud800" });
    assert.equal((await read(store, { taskId: id }, "\ud800")).owner, "\ud800");
    for (const other of ["\udfff", "\ufffd", '"\\ud800"', "\ud800\0"])
      assert.equal(await store.get(id, other), undefined);
  },

  "an unknown id is unknown to every verb": async ({ store }) => {
    for (const id of [newTask().id, "", "__proto__", "' OR 1=1 --", "\ud800"]) {
      assert.equal(await store.get(id, owner), undefined);
      assert.equal(await store.answer(id, owner, {}, null), undefined);
      assert.equal(await store.requestCancel(id, owner, 0), undefined);
      assert.equal(await store.send(id, "key", "1"), false);
    }
  },

  "the last answer makes the task working and queues it": async ({ store, clock }) => {
    const claimed = await beginAsking(store, ["b", "a"]);
    const parked = await read(store, claimed);
    assert.equal(parked.status, "input_required");
    assert.deepEqual(Object.entries(parked.inputRequests), [
      ["b", form],
      ["a", form],
    ]);
    clock.advance(1_000);
    const partly = await store.answer(claimed.taskId, owner, { b: { action: "decline" } }, null);
    assert.ok(typeof partly === "object");
    assert.deepEqual([partly.status, Object.keys(partly.inputRequests)], ["input_required", ["a"]]);
    assert.ok(partly.rev > parked.rev && partly.updatedAt === clock.now() && partly.turnedAt === parked.turnedAt);
    assert.equal((await claim(store)).length, 0);
    const answered = await store.answer(claimed.taskId, owner, { a: { action: "accept", content: { n: 1 } } }, null);
    assert.ok(typeof answered === "object");
    assert.deepEqual([answered.status, answered.inputRequests], ["working", {}]);
    assert.ok(answered.rev > partly.rev && answered.turnedAt === clock.now());
    const { journal, attempt } = await claimOne(store);
    assert.deepEqual(journal.inputs, {
      b: { request: form, response: { action: "decline" } },
      a: { request: form, response: { action: "accept", content: { n: 1 } } },
    });
    assert.equal(attempt, 1);
  },

  "the first answer wins; later ones and unknown keys change nothing": async ({ store }) => {
    const claimed = await beginAsking(store, ["a", "b"]);
    await store.answer(claimed.taskId, owner, { a: { action: "decline" } }, null);
    const before = await read(store, claimed);
    const second = { a: { action: "accept" }, other: { action: "accept" }, __proto__: { action: "accept" } };
    assert.deepEqual(await store.answer(claimed.taskId, owner, second, null), before);
    await store.answer(claimed.taskId, owner, { b: { action: "accept" } }, null);
    const resumed = await claimOne(store);
    assert.deepEqual(resumed.journal.inputs.a?.response, { action: "decline" });
    assert.deepEqual(Object.keys(resumed.journal.inputs), ["a", "b"]);
  },

  "of twenty answers at once one is kept, and the task is queued once": async ({ store }) => {
    const claimed = await beginAsking(store, ["a"]);
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, n) => store.answer(claimed.taskId, owner, { a: { action: "accept", n } }, null)),
    );
    assert.ok(all.every((task) => typeof task === "object" && task.status === "working"));
    assert.equal(new Set(all.map((task) => (task as Task).rev)).size, 1);
    const resumed = await claim(store, { count: 20 });
    assert.equal(resumed.length, 1);
    assert.match(JSON.stringify(resumed[0]?.journal.inputs.a?.response), /^\{"action":"accept","n":\d+\}$/);
  },

  "an answer that did not fit leaves its request open and says why": async ({ store }) => {
    const claimed = await beginAsking(store, ["a"]);
    const before = await read(store, claimed);
    const told = await store.answer(claimed.taskId, owner, {}, "Not\0a\nnumber.");
    assert.ok(typeof told === "object");
    assert.deepEqual([told.status, told.statusMessage], ["input_required", "Not a number."]);
    assert.ok(told.rev > before.rev);
    await store.answer(claimed.taskId, owner, { a: { action: "accept" } }, null);
    const after = await store.answer(claimed.taskId, owner, {}, "Too late.");
    assert.ok(typeof after === "object" && after.statusMessage !== "Too late.");
  },

  "keys may be any text": async ({ store }) => {
    const keys = ["__proto__", "constructor", "", "\0", "\ud800", "\udfff", '"', "size#2", "é😀", "'; DROP TABLE task"];
    const claimed = await begin(store);
    for (const key of keys) await store.recordStep(claimed, key, { state: "done", value: JSON.stringify(key) });
    await store.park(claimed, asks(...keys), false);
    for (const key of keys) await store.send(claimed.taskId, key, JSON.stringify(key));
    assert.deepEqual(Object.keys((await read(store, claimed)).inputRequests), keys);
    const responses = Object.fromEntries(keys.map((key) => [key, { action: "accept", key }]));
    const task = await store.answer(claimed.taskId, owner, responses, null);
    assert.ok(typeof task === "object" && task.status === "working");
    const { journal } = await claimOne(store);
    for (const part of [journal.steps, journal.inputs, journal.events]) assert.deepEqual(Object.keys(part), keys);
    for (const key of keys) {
      assert.deepEqual(Object.entries(journal.inputs).find(([name]) => name === key)?.[1].response, responses[key]);
    }
  },

  "an event that comes first is kept, and wakes the task as soon as it waits": async ({ store }) => {
    const claimed = await begin(store);
    assert.equal(await store.send(claimed.taskId, "paid", "1"), true);
    assert.equal(await store.send(claimed.taskId, "paid", "2"), true);
    assert.deepEqual(await store.journal(claimed), { steps: {}, inputs: {}, events: { paid: "1" } });
    await store.park(claimed, waits({ events: [{ key: "paid" }] }), false);
    assert.deepEqual((await claimOne(store)).journal.events, { paid: "1" });
  },

  "an event wakes the task that waits for it, and no other does": async ({ store }) => {
    const claimed = await begin(store);
    await store.park(claimed, waits({ events: [{ key: "paid" }, { key: "sent" }] }), false);
    assert.equal((await read(store, claimed)).status, "working");
    assert.equal(await store.send(claimed.taskId, "other", "0"), true);
    assert.equal((await claim(store)).length, 0);
    await Promise.all([1, 2, 3].map((n) => store.send(claimed.taskId, "paid", String(n))));
    const resumed = await claim(store, { count: 5 });
    assert.equal(resumed.length, 1);
    assert.equal(resumed[0]?.journal.events.paid, "1");
    assert.equal(resumed[0]?.journal.events.other, "0");
  },

  "an event cuts a timer short": async ({ store }) => {
    const claimed = await begin(store);
    await store.park(claimed, waits({ events: [{ key: "paid" }], timers: [{ key: "late", dueInMs: hour }] }), false);
    assert.equal((await claim(store)).length, 0);
    await store.send(claimed.taskId, "paid", "true");
    await claimOne(store);
  },

  "an event doesn't cut the pause before another attempt short": async ({ store, clock }) => {
    const claimed = await begin(store);
    await store.park(claimed, waits({ events: [{ key: "paid" }, { key: "sent" }] }), false);
    await store.send(claimed.taskId, "paid", "1");
    await store.release(await claimOne(store), { delayMs: hour, spend: true });
    await store.send(claimed.taskId, "sent", "1");
    assert.equal((await claim(store)).length, 0);
    clock.advance(hour);
    await claimOne(store);
  },

  "an event doesn't wake a task that waits for input": async ({ store }) => {
    const claimed = await begin(store);
    await store.park(claimed, { ...asks("size"), events: [{ key: "paid" }] }, false);
    await store.send(claimed.taskId, "paid", "1");
    assert.equal((await read(store, claimed)).status, "input_required");
    assert.equal((await claim(store)).length, 0);
    await store.answer(claimed.taskId, owner, { size: { action: "accept" } }, null);
    assert.deepEqual((await claimOne(store)).journal.events, { paid: "1" });
  },

  "a queued or parked task is cancelled at once": async ({ store }) => {
    const queued = await create(store);
    const asking = await beginAsking(store, ["a"], { priority: 1 });
    const waiting = await begin(store, { priority: 1 });
    await store.park(waiting, waits({ events: [{ key: "paid" }] }), false);
    const sleeping = await begin(store, { priority: 1 });
    await store.park(sleeping, waits({ timers: [{ key: "nap", dueInMs: 10 }] }), false);
    for (const id of [queued.id, asking.taskId, waiting.taskId, sleeping.taskId]) {
      const task = await store.requestCancel(id, owner, hour);
      assert.ok(typeof task === "object");
      assert.deepEqual([task.status, task.cancelRequested, task.inputRequests], ["cancelled", true, {}]);
      assert.deepEqual(await store.get(id, owner), task);
    }
    assert.equal((await claim(store)).length, 0);
    assert.equal(await store.nextDue(), null);
  },

  "with unwind, a cancel resumes a waiting task, whose end is its attempt's": async ({ store }) => {
    for (const wait of [
      waits({ inputs: [{ key: "size", request: form }] }),
      waits({ events: [{ key: "paid" }] }),
      waits({ timers: [{ key: "nap", dueInMs: hour }] }),
    ]) {
      const claimed = await begin(store, { unwind: true });
      await store.park(claimed, wait, false);
      const told = await store.requestCancel(claimed.taskId, owner, hour);
      assert.ok(typeof told === "object");
      assert.deepEqual([told.status, told.cancelRequested, told.inputRequests], ["working", true, {}]);
      assert.equal(told.activation, "queued");
      const late = await store.answer(claimed.taskId, owner, { size: { action: "accept" } }, "no");
      assert.deepEqual(late, told);
      const resumed = await claimOne(store);
      assert.deepEqual([resumed.taskId, resumed.task.cancelRequested], [claimed.taskId, true]);
      // Its process is drained, or it asks again: the handler has still to see the cancel.
      await store.release(resumed, { delayMs: 0, spend: false });
      await store.park(await claimOne(store), wait, false);
      assert.equal(await store.finish(await claimOne(store), { status: "cancelled", statusMessage: null }), true);
      assert.equal((await read(store, claimed)).status, "cancelled");
    }
  },

  "with unwind, a task that was never begun is cancelled at once, and one that is not resumed after its grace": async ({
    store,
    clock,
  }) => {
    const queued = await create(store, { unwind: true });
    const ended = await store.requestCancel(queued.id, owner, hour);
    assert.ok(typeof ended === "object" && ended.status === "cancelled");
    const parked = await begin(store, { unwind: true });
    await store.park(parked, waits({ events: [{ key: "paid" }] }), false);
    await store.requestCancel(parked.taskId, owner, 1_000);
    clock.advance(1_000);
    assert.equal((await store.sweep()).cancelled, 1);
    assert.equal((await read(store, parked)).status, "cancelled");
    assert.equal((await claim(store)).length, 0);
  },

  "a running task learns of a cancel, once, and may still finish": async ({ store, clock }) => {
    const claimed = await begin(store);
    const told = await store.requestCancel(claimed.taskId, owner, 10_000);
    assert.ok(typeof told === "object");
    assert.deepEqual([told.status, told.cancelRequested], ["working", true]);
    clock.advance(5_000);
    assert.deepEqual(await store.requestCancel(claimed.taskId, owner, hour), told);
    const attempt = { taskId: claimed.taskId, epoch: claimed.epoch };
    assert.deepEqual(await store.renew("worker-1", [attempt], 30_000), { lost: [], cancelled: [attempt] });
    assert.equal(await store.finish(claimed, { status: "completed", result: "1" }), true);
    const task = await read(store, claimed);
    assert.deepEqual([task.status, task.cancelRequested], ["completed", true]);
  },

  "a cancelled task never changes, whatever comes": async ({ store }) => {
    for (const outcome of [
      { status: "completed", result: "1" },
      { status: "failed", error: "{}", statusMessage: "no" },
      { status: "cancelled", statusMessage: "stopped" },
    ] as const) {
      const claimed = await beginAsking(store, ["a"]);
      await store.answer(claimed.taskId, owner, { a: { action: "accept" } }, null);
      const last = await claimOne(store);
      await store.finish(last, outcome);
      const frozen = await read(store, claimed);
      assert.equal(frozen.status, outcome.status);
      assert.deepEqual(await store.answer(claimed.taskId, owner, { a: { action: "decline" } }, "no"), frozen);
      assert.deepEqual(await store.requestCancel(claimed.taskId, owner, 0), frozen);
      assert.equal(await store.send(claimed.taskId, "paid", "1"), false);
      for (const attempt of [claimed, last]) {
        assert.equal(await store.finish(attempt, { status: "completed", result: "2" }), false);
        assert.equal(await store.setStatus(attempt, "late", null), false);
        assert.equal(await store.park(attempt, asks("b"), false), false);
        assert.equal(await store.release(attempt, { delayMs: 0, spend: false }), false);
      }
      await store.sweep();
      assert.equal((await claim(store)).length, 0);
      assert.deepEqual(await read(store, claimed), frozen);
    }
  },

  "of a cancel and an answer at once, both orders leave a task that is whole": async ({ store }) => {
    for (const cancelFirst of [true, false]) {
      const claimed = await beginAsking(store, ["a"]);
      const cancel = () => store.requestCancel(claimed.taskId, owner, hour);
      const answer = () => store.answer(claimed.taskId, owner, { a: { action: "accept" } }, null);
      await Promise.all(cancelFirst ? [cancel(), answer()] : [answer(), cancel()]);
      assert.equal((await read(store, claimed)).status, "cancelled");
      assert.equal((await claim(store)).length, 0);
    }
  },

  "of a cancel and a finish at once, the first one in decides, and the task is final": async ({ store }) => {
    const claimed = await begin(store);
    const [, finished] = await Promise.all([
      store.requestCancel(claimed.taskId, owner, hour),
      store.finish(claimed, { status: "completed", result: "1" }),
    ]);
    assert.equal(finished, true);
    assert.equal((await read(store, claimed)).status, "completed");
  },

  "the list shows every owner's tasks, newest first, page by page": async ({ store }) => {
    const created: Task[] = [];
    for (const who of ["alice", "bob", "alice", "bob"]) created.push(await create(store, { owner: who, tool: who }));
    const newest = created.toReversed();
    assert.deepEqual(await store.list({ limit: 10 }), newest);
    assert.deepEqual(await store.list({ limit: 2 }), newest.slice(0, 2));
    assert.deepEqual(await store.list({ limit: 2, before: newest[1]!.id }), newest.slice(2));
    assert.deepEqual(await store.list({ limit: 9, owner: "bob" }), [newest[0], newest[2]]);
    assert.deepEqual(await store.list({ limit: 9, tool: "alice" }), [newest[1], newest[3]]);
    await store.requestCancel(newest[0]!.id, "bob", 0);
    const cancelled = await store.list({ limit: 9, status: "cancelled" });
    assert.deepEqual(
      cancelled.map(({ id }) => id),
      [newest[0]!.id],
    );
  },

  "an owner's tasks come page by page, newest first, each as it is read and only once": async ({ store, clock }) => {
    const created: Task[] = [];
    for (let n = 0; n < 7; n++) {
      created.push(await create(store, { owner: n % 3 === 0 ? "bob" : "alice", keepMs: hour }));
      // Some of one instant, which their ids put in order.
      if (n % 2 === 0) clock.advance(1);
    }
    const byPlace = (a: Task, b: Task) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1);
    const ofAlice = created.filter((task) => task.owner === "alice").toSorted(byPlace);
    assert.deepEqual(await store.page("alice", null, 10), ofAlice);
    assert.deepEqual(await store.page("alice", null, 3), ofAlice.slice(0, 3));
    assert.deepEqual(await store.page("alice", ofAlice[2]!, 3), ofAlice.slice(3));
    assert.deepEqual(await store.page("nobody", null, 10), []);
    // What is over is not read any more, and those after it are still found.
    await store.requestCancel(ofAlice[1]!.id, "alice", 0);
    clock.advance(hour);
    assert.deepEqual(await store.page("alice", null, 10), [ofAlice[0], ...ofAlice.slice(2)]);
    await store.sweep();
    assert.equal(await store.get(ofAlice[1]!.id, "alice"), "expired");
    assert.deepEqual(await store.page("alice", ofAlice[1]!, 10), ofAlice.slice(2));
  },

  "whoever watches hears of each change, and no more after ending it": async ({ store }) => {
    const heard = new Set<string | null>();
    const stop = store.watch((id) => heard.add(id));
    const hears = async (id: string) => {
      while (!heard.has(id) && !heard.has(null)) await turn();
      heard.clear();
    };
    const { id } = await create(store);
    await hears(id);
    const claimed = await claimOne(store);
    await store.setStatus(claimed, "building", null);
    await hears(id);
    await store.park(claimed, asks("a"), false);
    await hears(id);
    await store.answer(id, owner, { a: { action: "accept" } }, null);
    await hears(id);
    const second = await claimOne(store);
    await store.park(second, waits({ events: [{ key: "paid" }] }), false);
    await hears(id);
    await store.send(id, "paid", "1");
    await hears(id);
    await store.release(await claimOne(store), { delayMs: 0, spend: false });
    await hears(id);
    await store.requestCancel(id, owner, 0);
    await hears(id);
    stop();
    await create(store);
    for (let n = 0; n < 5; n++) await turn();
    assert.equal(heard.size, 0);
  },

  "a closed store finishes what it was asked for, and takes no more": async ({ store }) => {
    const pending = Promise.all(Array.from({ length: 5 }, () => create(store)));
    const closed = store[Symbol.asyncDispose]();
    assert.equal((await pending).length, 5);
    await closed;
    await store[Symbol.asyncDispose]();
    const attempt = { taskId: "a", epoch: 1 };
    for (const verb of [
      () => create(store),
      () => store.get("a", owner),
      () => store.answer("a", owner, {}, null),
      () => store.send("a", "b", "1"),
      () => store.requestCancel("a", owner, 0),
      () => store.sweep(),
      () => store.page("a", null, 1),
      () => store.list({ limit: 1 }),
      () => store.secret("name", "value"),
      () => claim(store),
      () => store.nextDue(),
      () => store.renew("w", [attempt], 1),
      () => store.startStep(attempt, "a"),
      () => store.recordStep(attempt, "a", { state: "done", value: "" }),
      () => store.journal(attempt),
      () => store.setStatus(attempt, null, null),
      () => store.park(attempt, asks(), false),
      () => store.finish(attempt, { status: "completed", result: "1" }),
      () => store.release(attempt, { delayMs: 0, spend: true }),
    ])
      await assert.rejects(verb, { code: "STORE_CLOSED" });
  },

  "of several values for a secret the first one is kept, and everybody gets it": async ({ store }) => {
    const values = ["Zm9v-_8", "YmFy", "YmF6"];
    const kept = await Promise.all(values.map((value) => store.secret("key", value)));
    assert.ok(values.includes(kept[0] ?? ""));
    assert.deepEqual(new Set(kept).size, 1);
    assert.equal(await store.secret("key", "later"), kept[0]);
    assert.equal(await store.secret("other", "another"), "another");
  },

  "a finished task's lifetime is that from its creation to its deletion": async ({ store, clock }) => {
    const unbounded = await begin(store, { keepMs: day, timeoutMs: null });
    const bounded = await begin(store, { keepMs: day, timeoutMs: 2 * hour });
    const forever = await begin(store, { keepMs: null, timeoutMs: hour * 3 });
    const ttls = async () => [
      (await read(store, unbounded)).ttlMs,
      (await read(store, bounded)).ttlMs,
      (await read(store, forever)).ttlMs,
    ];
    assert.deepEqual(await ttls(), [null, 2 * hour + day, null]);
    clock.advance(hour);
    for (const claimed of [unbounded, bounded, forever])
      await store.finish(claimed, { status: "completed", result: "1" });
    assert.deepEqual(await ttls(), [hour + day, hour + day, null]);
  },
});
