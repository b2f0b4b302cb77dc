import fc from "fast-check";
import assert from "node:assert/strict";
import type { TaskError } from "../../src/errors.ts";
import { form, newTask } from "../../src/store/contract/kit.ts";
import type { Attempt, Claim, NewTask, Outcome, Reuse, TaskStore, Waits } from "../../src/store/store.ts";
import type { ManualClock } from "../../src/store/contract/manual-clock.ts";
import { apply, emptyModel, stepsOf, tasksOf, type Call, type Model, type Step } from "./model.ts";

/** Anything that clients and workers may do to a store, and what the model says to it. */

/** What has been made so far: verbs name tasks and attempts by their place, so that most of them hit something. */
interface Made {
  readonly tasks: NewTask[];
  readonly attempts: Attempt[];
}
type Verb = (made: Made) => Call;

const unknown: Attempt = { taskId: newTask().id, epoch: 1 };
const key = fc.constantFrom("a", "b", "__proto__");
const message = fc.option(fc.constantFrom("one", "two", "x\ny"));
const progress = fc.option(fc.nat(2).map((n) => ({ progress: n })));
const ms = fc.constantFrom(0, 1, 50, 100, 5_000);
const back = fc.nat(3);

const recent = <T>(items: readonly T[], n: number, otherwise: T): T => items.at(-1 - n) ?? items.at(-1) ?? otherwise;
const verb = <V extends Call["verb"], A>(
  name: V,
  given: fc.Arbitrary<A>,
  args: (given: A, made: Made) => Parameters<TaskStore[V]>,
): fc.Arbitrary<Verb> => given.map((value) => (made) => ({ verb: name, args: args(value, made) }) as Call);

/** A verb of the client side, now and then by a stranger. */
const ofTask = fc.record({ n: back, stranger: fc.integer({ min: 0, max: 5 }).map((n) => n === 0) });
const idOf = ({ n, stranger }: { n: number; stranger: boolean }, made: Made): [id: string, owner: string] => {
  const task = recent(made.tasks, n, newTask({ id: unknown.taskId }));
  return [task.id, stranger ? "mallory" : task.owner];
};
const ofAttempt = <V extends Call["verb"], A>(
  name: V,
  given: fc.Arbitrary<A>,
  args: (attempt: Attempt, given: A) => Parameters<TaskStore[V]>,
) =>
  verb<V, [number, A]>(name, fc.tuple(fc.constantFrom(0, 0, 0, 1, 2), given), ([n, value], made) =>
    args(recent(made.attempts, n, unknown), value),
  );

const reuse = fc.record<Reuse>({
  key: fc.constantFrom("one", "two"),
  call: fc.constantFrom("x", "x", "x", "y"),
  scope: fc.constantFrom("unfinished", "kept"),
});
const newTasks: fc.Arbitrary<Partial<NewTask>> = fc.record({
  owner: fc.constantFrom("alice", "bob", "\ud800"),
  tool: fc.constantFrom("build", "build", "test"),
  priority: fc.nat(1),
  timeoutMs: fc.constantFrom(null, null, 100),
  keepMs: fc.constantFrom(null, 0, 100),
  attempts: fc.integer({ min: 1, max: 3 }),
  recovery: fc.constantFrom("retry", "retry", "fail"),
  reuse: fc.oneof(fc.constant(null), reuse),
});
const timeoutMs = fc.constantFrom(undefined, undefined, 0, 1, 50, 100);
const waits: fc.Arbitrary<Waits> = fc.record({
  inputs: fc.uniqueArray(
    fc.record({ key, request: fc.constant(form), timeoutMs, since: fc.constantFrom(undefined, undefined, "a") }),
    { maxLength: 2, selector: ({ key }) => key },
  ),
  events: fc.uniqueArray(fc.record({ key, timeoutMs }), { maxLength: 2, selector: ({ key }) => key }),
  timers: fc.array(fc.record({ key, dueInMs: ms }), { maxLength: 2 }).map((timers) => timers.slice(0, 1)),
});
const outcome: fc.Arbitrary<Outcome> = fc.constantFrom(
  { status: "completed", result: "1" },
  { status: "failed", error: "{}", statusMessage: "no" },
  { status: "cancelled", statusMessage: null },
);
const limit = fc.constantFrom(null, null, 1, 2);

const anyVerb: fc.Arbitrary<Verb> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.tuple(newTasks, fc.constantFrom(null, null, 3)).map(([change, most]): Verb => (made) => {
      made.tasks.push(newTask(change));
      return { verb: "create", args: [made.tasks.at(-1)!, most] };
    }),
  },
  {
    weight: 6,
    arbitrary: verb(
      "claim",
      fc.record({ limit, ownerLimit: limit, count: fc.integer({ min: 1, max: 3 }) }),
      ({ limit, ...rest }) => [
        {
          worker: "worker-1",
          queues: ["default"],
          leaseMs: 60,
          tools: ["build", "test"].map((name) => ({ name, version: "", limit })),
          ...rest,
        },
      ],
    ),
  },
  {
    weight: 5,
    arbitrary: ofAttempt("park", fc.tuple(waits, fc.nat(3)), (attempt, [what, n]) => [attempt, what, n === 0]),
  },
  {
    weight: 4,
    arbitrary: verb("answer", fc.tuple(ofTask, fc.uniqueArray(key), message), ([of, keys, refused], made) => [
      ...idOf(of, made),
      Object.fromEntries(keys.map((key) => [key, { action: "accept", key }])),
      refused,
    ]),
  },
  {
    weight: 3,
    arbitrary: verb("send", fc.tuple(ofTask, key), ([of, key], made) => [idOf(of, made)[0], key, JSON.stringify(key)]),
  },
  {
    weight: 1,
    arbitrary: verb("requestCancel", fc.tuple(ofTask, ms), ([of, grace], made) => [...idOf(of, made), grace]),
  },
  verb("sweep", fc.constant(null), () => []),
  {
    weight: 2,
    arbitrary: verb(
      "renew",
      fc.tuple(fc.constantFrom("worker-1", "worker-1", "worker-2"), fc.uniqueArray(fc.nat(2), { minLength: 1 })),
      ([worker, places], made) => [
        worker,
        [...new Set(places.map((n) => recent(made.attempts, n, unknown))), unknown],
        60,
      ],
    ),
  },
  ofAttempt("startStep", key, (attempt, key) => [attempt, key]),
  {
    weight: 2,
    arbitrary: ofAttempt("recordStep", fc.tuple(key, fc.boolean()), (attempt, [key, good]) => [
      attempt,
      key,
      good ? { state: "done", value: "1" } : { state: "failed", error: "{}" },
    ]),
  },
  ofAttempt("setStatus", fc.tuple(message, progress), (attempt, [message, progress]) => [attempt, message, progress]),
  ofAttempt("finish", outcome, (attempt, outcome) => [attempt, outcome]),
  {
    weight: 2,
    arbitrary: ofAttempt("release", fc.record({ delayMs: ms, spend: fc.boolean() }), (attempt, how) => [attempt, how]),
  },
);

/** What happens next: time passes, verbs come together at one store, or one each at two stores on the same file. */
export type Move =
  | { readonly pass: number }
  | { readonly together: readonly Verb[] }
  | { readonly race: readonly [Verb, Verb] };
export const move: fc.Arbitrary<Move> = fc.oneof(
  { weight: 2, arbitrary: ms.map((pass) => ({ pass })) },
  { weight: 8, arbitrary: fc.array(anyVerb, { minLength: 1, maxLength: 4 }).map((together) => ({ together })) },
  { weight: 2, arbitrary: fc.tuple(anyVerb, anyVerb).map((race) => ({ race })) },
);

async function run(store: TaskStore, { verb, args }: Call): Promise<unknown> {
  try {
    return await (store[verb] as (...args: unknown[]) => Promise<unknown>)(...args);
  } catch (thrown) {
    return (thrown as TaskError).code;
  }
}

/**
 * How verbs that are called together take effect: in the order of the calls, each in one step; or only those on one task,
 * and those on many task by task.
 */
export type Together = "in order" | "by task";

/** Plays the moves on two stores over the same tasks, or on one twice, and follows with the model. */
export async function play(
  moves: readonly Move[],
  [here, there]: readonly [TaskStore, TaskStore],
  clock: ManualClock,
  together: Together = "in order",
): Promise<void> {
  const made: Made = { tasks: [], attempts: [] };
  let model = emptyModel(clock.now());
  for (const [n, move] of moves.entries()) {
    if ("pass" in move) {
      clock.advance(move.pass);
      model.now = clock.now();
      continue;
    }
    const calls = ("race" in move ? move.race : move.together).map((verb) => verb(made));
    const stores = "race" in move ? [here, there] : [n % 2 === 0 ? here : there];
    const got: unknown[] = [];
    // Creates that race with different limits are in an order of their own, which the list need not follow.
    const creates = calls.every(({ verb }) => verb === "create");
    const atOnce = together === "in order" || ("race" in move && !creates);
    for (const group of atOnce ? [calls] : byTask(calls))
      got.push(...(await Promise.all(group.map((call, at) => run(stores[at % stores.length]!, call)))));
    made.attempts.push(
      ...got
        .filter((value) => Array.isArray(value))
        .flatMap((claims: Claim[]) => claims.map(({ taskId, epoch }) => ({ taskId, epoch }))),
    );
    const after = await here.list({ limit: 100 });
    const reads = readsOf(made);
    const found = await Promise.all(reads.map((call) => run(there, call)));
    const followed = (order: readonly Step[]) => {
      const next = structuredClone(model);
      for (const step of order) step(next);
      assert.deepEqual(after, tasksOf(next));
      for (const [at, read] of reads.entries()) apply(next, read, found[at]);
      return next;
    };
    const whole = calls.map(
      (call, at): Step =>
        (next) =>
          apply(next, call, got[at]),
    );
    // Of two that race, either may have been first.
    const orders =
      "race" in move ? (together === "in order" ? [whole, whole.toReversed()] : mixes(calls, got)) : [whole];
    model = firstThatFits(orders, followed, { before: tasksOf(model), calls, got, after });
  }
}

/** What the first order comes to that explains what was seen. */
function firstThatFits(
  orders: readonly (readonly Step[])[],
  followed: (order: readonly Step[]) => Model,
  seen: unknown,
): Model {
  const mismatches: string[] = [];
  for (const order of orders) {
    try {
      return followed(order);
    } catch (mismatch) {
      mismatches.push((mismatch as Error).message);
    }
  }
  // A race doesn't come again: all that is to be known of it is said here.
  throw new Error([...mismatches, JSON.stringify(seen)].join("\n\n"));
}

/** Every order in which the steps of two calls may have been taken. */
function mixes(calls: readonly Call[], got: readonly unknown[]): Step[][] {
  const [here, there] = calls.map((call, at) => stepsOf(call, got[at]));
  return here!.flatMap((own) => there!.flatMap((other) => interleaved(own, other)));
}

function interleaved<T>(own: readonly T[], other: readonly T[]): T[][] {
  if (own.length === 0 || other.length === 0) return [[...own, ...other]];
  return [
    ...interleaved(own.slice(1), other).map((rest) => [own[0]!, ...rest]),
    ...interleaved(own, other.slice(1)).map((rest) => [other[0]!, ...rest]),
  ];
}

/** Parts calls into groups that may be made together: those that look at many tasks stand alone. */
function byTask(calls: readonly Call[]): Call[][] {
  const groups: Call[][] = [];
  let open = false;
  for (const call of calls) {
    const alone = ["create", "claim", "sweep", "renew"].includes(call.verb);
    if (open && !alone) groups.at(-1)!.push(call);
    else groups.push([call]);
    open = !alone;
  }
  return groups;
}

/** Reads agree, too; and they show which of two came first, where the list doesn't. */
function readsOf(made: Made): Call[] {
  return [
    { verb: "nextDue", args: [] },
    ...made.tasks.slice(-2).map(({ id, owner }): Call => ({ verb: "get", args: [id, owner] })),
    ...made.attempts.slice(-3).map((attempt): Call => ({ verb: "journal", args: [attempt] })),
  ];
}
