import type { TaskTool } from "../tool.ts";

/**
 * Who calls, by what the request shows. `declared`: 2026-07-28 with the Tasks extension. `rounds`: 2026-07-28 without it;
 * such a client can be asked to come back (multi-round-trip requests). `augmented`: 2025-11-25, with the parameter
 * `task`. `legacy`: the same without, or an older protocol; what the task asks is asked while the call is held.
 */
export type Generation = "declared" | "rounds" | "augmented" | "legacy";

/** What a caller gets while the work goes on: its task, one more round, or a handle in plain words. */
export type Continuation = "task" | "round" | "handle";

/** How a call is answered. In every case the work is a durable task from the first moment on. */
export interface Way {
  /** How long the call waits for the end, which is then answered as if there were no task. */
  readonly waits: "not" | "grace" | "hold";
  /** The answer when the task asks for input that this caller can give. */
  readonly asks: Continuation;
  /** The answer when it still runs, or asks for what this caller can't give. */
  readonly runs: Continuation;
}

/** THE reply policy, by caller and by whether the tool runs without a task: `refuse` is an error, and no task. */
export const policy: Readonly<Record<Generation, Readonly<Record<TaskTool["support"], Way | "refuse">>>> = {
  declared: {
    optional: { waits: "grace", asks: "task", runs: "task" },
    required: { waits: "not", asks: "task", runs: "task" },
  },
  rounds: {
    optional: { waits: "hold", asks: "round", runs: "round" },
    required: "refuse",
  },
  augmented: {
    optional: { waits: "not", asks: "task", runs: "task" },
    required: { waits: "not", asks: "task", runs: "task" },
  },
  legacy: {
    optional: { waits: "hold", asks: "handle", runs: "handle" },
    required: "refuse",
  },
};

/** After so many rounds a call gets a handle instead: clients of the official SDK give up after ten. */
export const mostRounds = 8;
