import type { Clock } from "../clock.ts";
import { TaskError } from "../errors.ts";
import type { AttemptVerbs } from "../engine/attempts.ts";
import type { Attempt, EventWait, InputWait, Waits } from "../store/store.ts";
import { lookUp } from "./keys.ts";

/** What a handler waits for: an answer, a value that is sent, or an instant. */
export type Awaited =
  | ({ readonly kind: "input" } & InputWait)
  | ({ readonly kind: "event" } & EventWait)
  | { readonly kind: "timer"; readonly key: string; readonly dueInMs: number };

/** A wait. Settled only where waits are held in memory: elsewhere the attempt ends first. */
type Wait = Awaited & { readonly resolve: (value: unknown) => void; readonly reject: (reason: unknown) => void };

/** What the waits of an attempt need from it. */
export interface WaitsOptions {
  readonly attempt: Attempt;
  readonly verbs: AttemptVerbs;
  readonly clock: Clock;
  /** Keep the attempt and wait in memory, for tools that must never run twice. */
  readonly hold: boolean;
  /** Called before the attempt is parked. */
  readonly settle: () => Promise<void>;
  /** Called with the time that the handler spent outside of steps before it waited. */
  readonly unstepped: (ms: number) => void;
  /** Called when the attempt has ended, because it parked or was lost. */
  readonly ended: (how: "parked" | "lost") => void;
  readonly failed: (error: unknown) => void;
}

/** Collects what a handler waits for; once nothing else goes on, the attempt parks with all of it. */
export interface WaitList {
  /** Waits. Where the attempt parks first, the promise never settles. */
  add(what: Awaited): Promise<unknown>;
  /** A step begins: no parking before it ends. False: the attempt parks or is over, and nothing begins any more. */
  begin(): boolean;
  end(): void;
  /** Looks whether something that is held in memory has come. False: the handler has ended, or the attempt parks. */
  look(): boolean;
  /** The attempt is to end: what is held in memory waits no longer. */
  abort(reason: unknown): void;
  /** No parking from now on. False: it has begun already. */
  close(): boolean;
}

export function createWaits({ attempt, verbs, clock, hold, settle, unstepped, ended, failed }: WaitsOptions): WaitList {
  let freeSince = clock.now();
  let freeMs = 0;
  let pending: Wait[] = [];
  let running = 0;
  let state: "open" | "parking" | "closed" = "open";
  const held = new Set<Wait>();
  const cancelTimers = new Set<() => void>();

  function pauseFree(): void {
    if (running === 0 && pending.length === 0) freeMs += clock.now() - freeSince;
  }

  /** The turn of the event loop lets waits that are asked side by side come together. */
  function schedule(): void {
    if (pending.length > 0 && running === 0) setImmediate(() => void park().catch(failed));
  }

  async function park(): Promise<void> {
    if (state !== "open" || running > 0 || pending.length === 0) return;
    if (hold) return keep();
    state = "parking";
    unstepped(freeMs);
    await settle();
    ended((await verbs.park(attempt, asked(pending), false)) ? "parked" : "lost");
  }

  async function keep(): Promise<void> {
    const fresh = pending.filter((wait) => !held.has(wait));
    if (fresh.length === 0) return;
    for (const wait of fresh) held.add(wait);
    await settle();
    if (state !== "open") return;
    const visible = fresh.filter((wait) => wait.kind !== "timer");
    for (const wait of fresh) if (wait.kind === "timer") startTimer(wait);
    if (visible.length > 0 && !(await verbs.park(attempt, asked(visible), true))) return ended("lost");
    await check();
  }

  function startTimer(wait: Wait & { kind: "timer" }): void {
    const cancel = clock.after(wait.dueInMs, () => {
      cancelTimers.delete(cancel);
      held.delete(wait);
      pending = pending.filter((other) => other !== wait);
      wait.resolve(undefined);
    });
    cancelTimers.add(cancel);
  }

  async function check(): Promise<void> {
    if (state !== "open" || !pending.some((wait) => held.has(wait) && wait.kind !== "timer")) return;
    const journal = await verbs.journal(attempt);
    if (journal === null) return ended("lost");
    for (const wait of pending) {
      if (!held.has(wait) || wait.kind === "timer") continue;
      const value =
        wait.kind === "input"
          ? (lookUp(journal.inputs, wait.key)?.response ?? undefined)
          : lookUp(journal.events, wait.key);
      if (value === undefined) continue;
      held.delete(wait);
      pending = pending.filter((other) => other !== wait);
      wait.resolve(value);
    }
  }

  return {
    add(what) {
      const { promise, resolve, reject } = Promise.withResolvers<unknown>();
      if (state === "open") {
        pauseFree();
        pending.push({ ...what, resolve, reject });
        schedule();
      }
      return promise;
    },
    begin() {
      if (state !== "open") return false;
      pauseFree();
      running++;
      return true;
    },
    end() {
      running--;
      freeSince = clock.now();
      schedule();
    },
    look() {
      void check().catch(failed);
      return state === "open";
    },
    abort(reason) {
      if (hold) for (const wait of pending.splice(0)) wait.reject(reason);
    },
    close() {
      for (const cancel of cancelTimers) cancel();
      if (state === "parking") return false;
      state = "closed";
      return true;
    },
  };
}

function asked(waits: readonly Wait[]): Waits {
  return {
    inputs: waits
      .filter((wait) => wait.kind === "input")
      .map(({ key, request, timeoutMs, since }) => ({ key, request, timeoutMs, since })),
    events: waits.filter((wait) => wait.kind === "event").map(({ key, timeoutMs }) => ({ key, timeoutMs })),
    timers: waits.filter((wait) => wait.kind === "timer").map(({ key, dueInMs }) => ({ key, dueInMs })),
  };
}

/** What a refusal means to a handler that asked for an answer. */
export function refusal(action: unknown): TaskError {
  return new TaskError(action === "decline" ? "DECLINED" : "INPUT_CANCELLED");
}
