import assert from "node:assert/strict";
import type { InputWait, TaskStore } from "../store.ts";
import {
  asks,
  begin,
  cases,
  claim,
  claimOne,
  create,
  day,
  form,
  hour,
  leaseMs,
  owner,
  read,
  tool,
  waits,
} from "./kit.ts";

const accept = { action: "accept" };
const within = (timeoutMs: number, ...keys: string[]): InputWait[] =>
  keys.map((key) => ({ key, request: form, timeoutMs }));
const open = (...keys: string[]): InputWait[] => keys.map((key) => ({ key, request: form }));

/** A task that waits for these, and what a claim at their timeout finds. */
async function beginWaiting(store: TaskStore, ...inputs: InputWait[]) {
  const claimed = await begin(store);
  assert.equal(await store.park(claimed, waits({ inputs }), false), true);
  return claimed;
}

/** What comes of a wait that has a timeout. */
export const timeoutCases = cases({
  "a request that nobody answers in time is over: its task goes on, and every attempt sees the same": async ({
    store,
    clock,
  }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"));
    assert.equal(await store.nextDue(), hour);
    clock.advance(hour - 1);
    assert.equal((await claim(store)).length, 0);
    const before = await read(store, asked);
    assert.deepEqual([before.status, before.inputRequests], ["input_required", { a: form }]);
    clock.advance(1);
    const resumed = await claimOne(store);
    assert.deepEqual(resumed.journal.inputs, { a: { request: form, response: "timed out" } });
    assert.deepEqual([resumed.task.status, resumed.task.inputRequests, resumed.attempt], ["working", {}, 1]);
    assert.ok(resumed.task.rev > before.rev && resumed.task.turnedAt === clock.now());
    const late = await store.answer(asked.taskId, owner, { a: accept }, "no");
    assert.deepEqual(late, resumed.task);
    clock.advance(leaseMs);
    const third = await claimOne(store);
    assert.deepEqual(third.journal.inputs, resumed.journal.inputs);
    await store.park(third, asks("a"), false);
    assert.deepEqual((await claimOne(store)).journal.inputs, resumed.journal.inputs);
    assert.equal(await store.nextDue(), leaseMs);
  },

  "a sweep ends it, too, where no worker is": async ({ store, clock }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"));
    await store.answer(asked.taskId, owner, {}, "The answer did not fit.");
    clock.advance(hour);
    assert.deepEqual(await store.sweep(), { timedOut: 0, cancelled: 0, purged: [], more: false });
    const task = await read(store, asked);
    assert.deepEqual(
      [task.status, task.statusMessage, task.inputRequests, task.activation],
      ["working", null, {}, "queued"],
    );
    assert.equal((await claimOne(store)).journal.inputs.a?.response, "timed out");
  },

  "an answer in time counts, however late the task goes on": async ({ store, clock }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"));
    clock.advance(hour - 1);
    await store.answer(asked.taskId, owner, { a: accept }, null);
    clock.advance(day);
    await store.sweep();
    assert.deepEqual((await claimOne(store)).journal.inputs.a?.response, accept);
  },

  "an answer after the timeout is none, even before anybody has looked, and its question is gone": async ({
    store,
    clock,
  }) => {
    const asked = await beginWaiting(store, ...within(hour, "a", "b"), ...open("c"));
    clock.advance(hour);
    const after = await store.answer(asked.taskId, owner, { a: accept, c: accept }, null);
    assert.ok(typeof after === "object");
    assert.deepEqual([after.status, after.inputRequests, after.activation], ["working", {}, "queued"]);
    const { inputs } = (await claimOne(store)).journal;
    assert.deepEqual(
      Object.values(inputs).map(({ response }) => response),
      ["timed out", "timed out", accept],
    );
  },

  "an answer to what is unknown ends no wait before its time": async ({ store, clock }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"));
    clock.advance(hour - 1);
    const before = await read(store, asked);
    assert.deepEqual(await store.answer(asked.taskId, owner, { other: accept }, null), before);
  },

  "of an answer and a timeout at once, one counts, and the answer that counts was in time": async ({
    store,
    clock,
  }) => {
    for (const inTime of [true, false]) {
      for (const answerFirst of [true, false]) {
        const asked = await beginWaiting(store, ...within(hour, "a"));
        clock.advance(inTime ? hour - 1 : hour);
        const answer = () => store.answer(asked.taskId, owner, { a: accept }, null);
        await Promise.all(answerFirst ? [answer(), store.sweep()] : [store.sweep(), answer()]);
        clock.advance(1);
        const resumed = await claimOne(store);
        assert.deepEqual(resumed.journal.inputs.a?.response, inTime ? accept : "timed out");
        await store.finish(resumed, { status: "completed", result: "1" });
      }
    }
  },

  "of several, the one that times out wakes its task, and the others stay open, with their own timeouts": async ({
    store,
    clock,
  }) => {
    const inputs = [...within(hour, "a"), ...within(2 * hour, "b"), ...open("c", "d")];
    const asked = await beginWaiting(store, ...inputs);
    await store.answer(asked.taskId, owner, { c: accept }, null);
    clock.advance(hour);
    const second = await claimOne(store);
    assert.deepEqual([second.task.status, Object.keys(second.task.inputRequests)], ["input_required", ["b", "d"]]);
    assert.deepEqual(second.journal.inputs.c?.response, accept);
    // Answered while the attempt runs that the timeout began.
    const during = await store.answer(second.taskId, owner, { d: accept }, null);
    assert.ok(typeof during === "object");
    assert.deepEqual([during.status, Object.keys(during.inputRequests)], ["input_required", ["b"]]);
    assert.equal(await store.nextDue(), leaseMs);
    await store.park(second, waits({ inputs: [...within(2 * hour, "b"), ...open("d")] }), false);
    const third = await claimOne(store);
    assert.deepEqual(third.journal.inputs.d?.response, accept);
    await store.park(third, waits({ inputs: within(2 * hour, "b") }), false);
    assert.equal(await store.nextDue(), hour);
    clock.advance(hour);
    const { journal, task } = await claimOne(store);
    assert.deepEqual([journal.inputs.b?.response, task.status], ["timed out", "working"]);
  },

  "a timeout that passes while an attempt runs is there at its next wait": async ({ store, clock }) => {
    const wait = [...within(hour, "a"), ...within(hour + 1, "b"), ...open("c")];
    const asked = await beginWaiting(store, ...wait);
    clock.advance(hour);
    const second = await claimOne(store);
    clock.advance(1);
    for (const look of [() => store.sweep(), () => claim(store)]) await look();
    assert.deepEqual(Object.keys((await read(store, asked)).inputRequests), ["c"]);
    await store.park(second, waits({ inputs: wait.slice(1) }), false);
    const third = await claimOne(store);
    assert.equal(third.journal.inputs.b?.response, "timed out");
    await store.park(third, waits({ inputs: wait.slice(2) }), false);
    assert.equal((await claim(store)).length, 0);
  },

  "once a wait has timed out, whatever comes wakes the task: its handler may have gone on without the others": async ({
    store,
    clock,
  }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"), ...open("left"));
    const resume = async () => {
      const claimed = await claimOne(store);
      assert.deepEqual([claimed.task.status, "left" in claimed.task.inputRequests], ["input_required", true]);
      assert.equal((await claim(store)).length, 0);
      return claimed;
    };
    clock.advance(hour);
    await store.park(await resume(), waits({ inputs: open("left", "other") }), false);
    await store.answer(asked.taskId, owner, { other: accept }, null);
    await store.park(await resume(), waits({ inputs: open("left"), events: [{ key: "paid" }] }), false);
    assert.equal((await claim(store)).length, 0);
    await store.send(asked.taskId, "paid", "1");
    const wait = waits({ inputs: open("left"), timers: [{ key: "nap", dueInMs: 5 }] });
    await store.park(await resume(), wait, false);
    assert.equal((await claim(store)).length, 0);
    assert.equal(await store.nextDue(), 5);
    clock.advance(5);
    const last = await resume();
    await store.finish(last, { status: "completed", result: "1" });
    assert.deepEqual((await read(store, asked)).inputRequests, {});
  },

  "an answer comes before the timer, and ends the pause, of a task one of whose waits timed out": async ({
    store,
    clock,
  }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"), ...open("b"));
    clock.advance(hour);
    const wait = waits({ inputs: open("b"), timers: [{ key: "nap", dueInMs: day }] });
    await store.park(await claimOne(store), wait, false);
    await store.answer(asked.taskId, owner, { b: accept }, null);
    const resumed = await claimOne(store);
    assert.deepEqual([resumed.task.status, resumed.journal.inputs.b?.response], ["working", accept]);
  },

  "an attempt that began by a timeout and lost its worker is followed by another": async ({ store, clock }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"), ...open("b"));
    clock.advance(hour);
    const second = await claimOne(store);
    clock.advance(leaseMs);
    const third = await claimOne(store, { worker: "worker-2" });
    assert.deepEqual([third.epoch, third.attempt, third.task.status], [second.epoch + 1, 2, "input_required"]);
    await store.release(third, { delayMs: 0, spend: false });
    const fourth = await claimOne(store);
    assert.deepEqual(Object.keys(fourth.task.inputRequests), ["b"]);
    assert.equal(await store.finish(fourth, { status: "completed", result: "1" }), true);
    assert.equal((await read(store, asked)).status, "completed");
  },

  "what is asked again counts from the first time": async ({ store, clock }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"));
    clock.advance(hour / 4);
    await store.answer(asked.taskId, owner, { a: accept }, null);
    const again: InputWait[] = [{ key: "a#2", request: form, timeoutMs: hour, since: "a" }];
    await store.park(await claimOne(store), waits({ inputs: again }), false);
    clock.advance(hour * 0.75 - 1);
    assert.equal((await claim(store)).length, 0);
    clock.advance(1);
    const { journal } = await claimOne(store);
    assert.deepEqual(journal.inputs["a#2"]?.response, "timed out");
    assert.deepEqual(journal.inputs.a?.response, accept);
  },

  "a request asked without a timeout gets one when it is asked with one": async ({ store, clock }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"), ...open("b"));
    clock.advance(hour);
    await store.park(await claimOne(store), waits({ inputs: within(10, "b") }), false);
    clock.advance(10);
    assert.equal((await claimOne(store)).journal.inputs.b?.response, "timed out");
    assert.equal((await read(store, asked)).status, "working");
  },

  "a wait that is asked for again without its timeout keeps the first one's, even if that passed meanwhile": async ({
    store,
    clock,
  }) => {
    const events = [
      { key: "e", timeoutMs: 2 * hour },
      { key: "first", timeoutMs: hour },
    ];
    const asked = await begin(store);
    await store.park(asked, waits({ inputs: within(2 * hour, "a"), events }), false);
    clock.advance(hour);
    await store.park(await claimOne(store), waits({ timers: [{ key: "nap", dueInMs: 2 * hour }] }), false);
    for (const ms of [hour, hour]) {
      clock.advance(ms);
      await store.sweep();
    }
    await store.park(await claimOne(store), waits({ inputs: open("a"), events: [{ key: "e" }] }), false);
    const { journal, task } = await claimOne(store);
    assert.deepEqual([journal.inputs.a?.response, journal.events], ["timed out", { e: null, first: null }]);
    assert.deepEqual([task.status, task.inputRequests], ["working", {}]);
  },

  "what an earlier attempt waited for doesn't cut short the pause before a later one": async ({ store, clock }) => {
    const asked = await beginWaiting(store, ...within(hour, "a"), ...within(2 * hour, "b"), ...open("c"));
    clock.advance(hour);
    await store.release(await claimOne(store), { delayMs: day, spend: true });
    await store.answer(asked.taskId, owner, { c: accept }, null);
    assert.equal((await claim(store)).length, 0);
    clock.advance(hour);
    assert.equal((await claim(store)).length, 0);
    assert.deepEqual([(await read(store, asked)).status, await store.nextDue()], ["working", day - hour]);
    clock.advance(day - hour);
    const { inputs } = (await claimOne(store)).journal;
    assert.deepEqual([inputs.b?.response, inputs.c?.response], ["timed out", accept]);
  },

  "an event that doesn't come in time is over, and a value that comes later is not kept": async ({ store, clock }) => {
    const claimed = await begin(store);
    await store.park(claimed, waits({ events: [{ key: "paid", timeoutMs: hour }, { key: "sent" }] }), false);
    assert.deepEqual([(await read(store, claimed)).activation, await store.nextDue()], [null, hour]);
    clock.advance(hour);
    assert.equal(await store.send(claimed.taskId, "paid", "1"), true);
    const resumed = await claimOne(store);
    assert.deepEqual(resumed.journal.events, { paid: null });
    assert.equal(await store.send(claimed.taskId, "paid", "2"), true);
    await store.park(resumed, waits({ events: [{ key: "sent" }] }), false);
    await store.send(claimed.taskId, "sent", "3");
    assert.deepEqual((await claimOne(store)).journal.events, { paid: null, sent: "3" });
  },

  "an event in time counts, whether before it is awaited or after": async ({ store, clock }) => {
    const claimed = await begin(store);
    await store.send(claimed.taskId, "early", "1");
    const both = ["early", "paid"].map((key) => ({ key, timeoutMs: hour }));
    await store.park(claimed, waits({ events: both }), false);
    const second = await claimOne(store);
    await store.park(second, waits({ events: both.slice(1) }), false);
    clock.advance(hour - 1);
    await store.send(claimed.taskId, "paid", "2");
    clock.advance(hour);
    assert.deepEqual((await claimOne(store)).journal.events, { early: "1", paid: "2" });
  },

  "an event's timeout wakes a task that has questions, and one that sleeps": async ({ store, clock }) => {
    const asked = await begin(store);
    await store.park(asked, { ...asks("a"), events: [{ key: "paid", timeoutMs: hour }] }, false);
    const asleep = await begin(store);
    const nap = [{ key: "nap", dueInMs: day }];
    await store.park(asleep, waits({ events: [{ key: "paid", timeoutMs: hour }], timers: nap }), false);
    clock.advance(hour);
    const resumed = await claim(store, { count: 5 });
    assert.deepEqual(
      resumed.map(({ task, journal }) => [task.status, journal.events]),
      [
        ["input_required", { paid: null }],
        ["working", { paid: null }],
      ],
    );
  },

  "a timeout of no length is over at once, an endless one never": async ({ store, clock }) => {
    const none = await begin(store);
    await store.park(none, waits({ inputs: within(0, "a"), events: [{ key: "e", timeoutMs: 0 }] }), false);
    const resumed = await claimOne(store);
    assert.deepEqual([resumed.journal.inputs.a?.response, resumed.journal.events], ["timed out", { e: null }]);
    await store.finish(resumed, { status: "completed", result: "1" });
    await beginWaiting(store, ...within(Number.POSITIVE_INFINITY, "a"));
    clock.advance(10_000 * day);
    assert.equal((await claim(store)).length, 0);
  },

  "a held wait times out where it is held": async ({ store, clock }) => {
    const claimed = await begin(store, { recovery: "fail" });
    await store.park(claimed, waits({ inputs: within(1_000, "a"), events: [{ key: "e", timeoutMs: 2_000 }] }), true);
    assert.equal(await store.nextDue(), 1_000);
    clock.advance(1_000);
    assert.equal((await claim(store)).length, 0);
    const { taskId, epoch } = claimed;
    assert.deepEqual(await store.renew("worker-1", [{ taskId, epoch }], leaseMs), { lost: [], cancelled: [] });
    assert.equal((await store.journal(claimed))?.inputs.a?.response, "timed out");
    assert.deepEqual(await read(store, claimed).then(({ status, activation }) => [status, activation]), [
      "working",
      "leased",
    ]);
    clock.advance(1_000);
    await store.sweep();
    assert.deepEqual((await store.journal(claimed))?.events, { e: null });
    assert.equal(await store.finish(claimed, { status: "completed", result: "1" }), true);
  },

  "a task that has ended is not waited for": async ({ store, clock }) => {
    for (const unwind of [false, true]) {
      const claimed = await begin(store, { unwind });
      const events = [{ key: "e", timeoutMs: hour }];
      await store.park(claimed, waits({ inputs: within(hour, "a"), events }), false);
      await store.requestCancel(claimed.taskId, owner, day);
      if (unwind) {
        const resumed = await claimOne(store);
        assert.deepEqual([resumed.task.cancelRequested, resumed.task.inputRequests], [true, {}]);
        assert.equal(resumed.journal.inputs.a?.response, null);
        await store.finish(resumed, { status: "cancelled", statusMessage: null });
      }
      const frozen = await read(store, claimed);
      assert.equal(frozen.status, "cancelled");
      assert.equal(await store.nextDue(), null);
      clock.advance(hour);
      await store.sweep();
      assert.equal((await claim(store)).length, 0);
      assert.deepEqual(await read(store, claimed), frozen);
    }
  },

  "a handler that cleans up after a cancel sees no timeout that passed after it, and nobody is asked any more": async ({
    store,
    clock,
  }) => {
    const events = [{ key: "e", timeoutMs: hour }];
    const parked = await begin(store, { unwind: true });
    await store.park(parked, waits({ events }), false);
    const running = await begin(store, { unwind: true });
    const inputs = [...within(1, "a"), ...within(hour, "b")];
    await store.park(running, waits({ inputs }), false);
    clock.advance(1);
    const late = await claimOne(store);
    for (const { taskId } of [parked, running]) await store.requestCancel(taskId, owner, day);
    await store.park(late, waits({ inputs: inputs.slice(1), events }), false);
    const { status, inputRequests } = await read(store, running);
    assert.deepEqual([status, inputRequests], ["working", {}]);
    clock.advance(hour);
    const [first, second] = await claim(store, { count: 2 });
    assert.deepEqual([first?.taskId, first?.journal.events], [parked.taskId, {}]);
    assert.deepEqual([second?.journal.inputs.b?.response, second?.journal.events], [null, {}]);
  },

  "a task's own timeout goes before those of its waits": async ({ store, clock }) => {
    const claimed = await begin(store, { timeoutMs: hour });
    await store.park(claimed, waits({ inputs: within(hour, "a") }), false);
    clock.advance(hour);
    assert.equal((await claim(store)).length, 0);
    assert.equal((await read(store, claimed)).status, "failed");
  },

  "timeouts of many tasks pass at once, and a queue's limits hold": async ({ store, clock }) => {
    const ids: string[] = [];
    for (let n = 0; n < 20; n++) {
      const { id } = await create(store, { owner: `owner-${n}` });
      ids.push(id);
    }
    for (const claimed of await claim(store, { count: 20 }))
      await store.park(claimed, waits({ inputs: within(hour, "a") }), false);
    clock.advance(hour);
    const limited = { tools: [{ ...tool, limit: 15 }], count: 8 };
    const taken = [await claim(store, limited), await claim(store, limited), await claim(store, limited)];
    assert.deepEqual(
      taken.map(({ length }) => length),
      [8, 7, 0],
    );
    assert.ok(taken.flat().every(({ journal }) => journal.inputs.a?.response === "timed out"));
    assert.equal(new Set(taken.flat().map(({ taskId }) => taskId)).size, 15);
    assert.equal(ids.length, 20);
  },
});
