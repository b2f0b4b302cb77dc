import assert from "node:assert/strict";
import type { Clock } from "../../clock.ts";
import { noCapabilities } from "../../protocol/capabilities.ts";
import type { InputRequest } from "../../protocol/input.ts";
import { newTaskId } from "../../protocol/ids.ts";
import type { Attempt, Claim, ClaimRequest, NewTask, Task, TaskStore, Waits } from "../store.ts";
import { manualClock, type ManualClock } from "./manual-clock.ts";

/** Opens a fresh, empty store that takes its time from this clock. The case closes it. */
export type OpenStore = (options: { readonly clock: Clock }) => TaskStore | Promise<TaskStore>;

/** One thing that every store does. */
export type ContractCase = readonly [name: string, run: (open: OpenStore) => Promise<void>];

/** What a case works with. */
export interface Bench {
  readonly store: TaskStore;
  readonly clock: ManualClock;
}

/** Cases by name, each on a store of its own. */
export function cases(table: Readonly<Record<string, (bench: Bench) => Promise<void>>>): readonly ContractCase[] {
  return Object.entries(table).map(([name, run]) => [
    name,
    async (open) => {
      const clock = manualClock();
      await using store = await open({ clock });
      await run({ store, clock });
    },
  ]);
}

export const owner = "alice";
export const leaseMs = 30_000;
export const hour = 3_600_000;
export const day = 24 * hour;
export const tool = { name: "build", version: "", limit: null };

export const form: InputRequest = {
  method: "elicitation/create",
  params: { mode: "form", message: "Size?", requestedSchema: { type: "object", properties: {} } },
};

export function newTask(change: Partial<NewTask> = {}): NewTask {
  return {
    id: newTaskId(),
    owner,
    tool: tool.name,
    version: tool.version,
    queue: "default",
    priority: 0,
    args: "{}",
    answers: "{}",
    client: noCapabilities,
    auth: "null",
    timeoutMs: null,
    keepMs: day,
    attempts: 3,
    recovery: "retry",
    unwind: false,
    reuse: null,
    ...change,
  };
}

export async function create(store: TaskStore, change: Partial<NewTask> = {}): Promise<Task> {
  return await store.create(newTask(change), null);
}

export async function claim(store: TaskStore, change: Partial<ClaimRequest> = {}): Promise<readonly Claim[]> {
  return await store.claim({
    worker: "worker-1",
    tools: [tool],
    queues: ["default"],
    ownerLimit: null,
    count: 1,
    leaseMs,
    ...change,
  });
}

export async function claimOne(store: TaskStore, change: Partial<ClaimRequest> = {}): Promise<Claim> {
  const [claimed, ...rest] = await claim(store, change);
  assert.ok(claimed !== undefined, "there is something to claim");
  assert.equal(rest.length, 0);
  return claimed;
}

/** A task that a worker has just begun. */
export async function begin(store: TaskStore, change: Partial<NewTask> = {}): Promise<Claim> {
  const { id } = await create(store, change);
  const claimed = await claimOne(store, { tools: [{ ...tool, name: change.tool ?? tool.name }] });
  assert.equal(claimed.taskId, id);
  return claimed;
}

export function waits(change: Partial<Waits>): Waits {
  return { inputs: [], events: [], timers: [], ...change };
}

/** Waits for the answers to these keys. */
export function asks(...keys: string[]): Waits {
  return waits({ inputs: keys.map((key) => ({ key, request: form })) });
}

/** A task that waits for the answers to these keys. */
export async function beginAsking(store: TaskStore, keys: string[], change: Partial<NewTask> = {}): Promise<Claim> {
  const claimed = await begin(store, change);
  assert.equal(await store.park(claimed, asks(...keys), false), true);
  return claimed;
}

/** The task, which is there. */
export async function read(store: TaskStore, { taskId }: { readonly taskId: string }, who = owner): Promise<Task> {
  const task = await store.get(taskId, who);
  assert.ok(typeof task === "object", "the task is there");
  return task;
}

/** Every verb of an attempt changes nothing and says so. */
export async function assertFenced(store: TaskStore, attempt: Attempt): Promise<void> {
  const before = await store.list({ limit: 100 });
  assert.deepEqual(await store.renew("worker-1", [attempt], leaseMs), {
    lost: [{ taskId: attempt.taskId, epoch: attempt.epoch }],
    cancelled: [],
  });
  assert.equal(await store.startStep(attempt, "fenced"), false);
  assert.equal(await store.recordStep(attempt, "fenced", { state: "done", value: "1" }), false);
  assert.equal(await store.journal(attempt), null);
  assert.equal(await store.setStatus(attempt, "fenced", null), false);
  assert.equal(await store.park(attempt, asks("fenced"), false), false);
  assert.equal(await store.park(attempt, asks("fenced"), true), false);
  assert.equal(await store.finish(attempt, { status: "completed", result: '"fenced"' }), false);
  assert.equal(await store.release(attempt, { delayMs: 0, spend: true }), false);
  assert.deepEqual(await store.list({ limit: 100 }), before);
}
