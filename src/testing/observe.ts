import type { StepContext, TaskContext, TaskTool } from "../tool.ts";

/** What one attempt of a handler showed. */
export interface Observed {
  /** Steps and waits in the order of their beginning. */
  readonly names: readonly string[];
  /** Steps that ran before, in an earlier attempt, and ran again without looking at their idempotency key. */
  readonly repeatedWithoutKey: ReadonlySet<string>;
  /** Waits that came after asynchronous work outside of steps. */
  readonly unstepped: readonly { readonly before: string; readonly ms: number }[];
}

/** The tool with a handler that is watched; `ran` counts each step's runs over all attempts. */
export function watchHandler(
  tool: TaskTool,
  taskId: string,
  ran: Map<string, number>,
): { tool: TaskTool; observed: Observed } {
  const names: string[] = [];
  const repeatedWithoutKey = new Set<string>();
  const unstepped: { before: string; ms: number }[] = [];
  const free = createFreeTime();

  function watchStep(fn: (step: StepContext) => unknown, once: boolean) {
    return async (step: StepContext) => {
      const name = step.key.slice(taskId.length + 1);
      const runs = (ran.get(name) ?? 0) + 1;
      ran.set(name, runs);
      let keyUsed = once;
      try {
        return await fn({
          signal: step.signal,
          get key() {
            keyUsed = true;
            return step.key;
          },
        });
      } finally {
        if (runs > 1 && !keyUsed) repeatedWithoutKey.add(name);
      }
    };
  }

  function wait(name: string): void {
    names.push(name);
    const ms = free.spent();
    if (ms !== null) unstepped.push({ before: name, ms });
  }

  function watch(task: TaskContext): TaskContext {
    const step: TaskContext["step"] = (name, fn, options) => {
      names.push(name);
      return free.without(() => task.step(name, watchStep(fn, options?.once === true) as typeof fn, options));
    };
    const named = <A extends unknown[], R>(verb: (name: string, ...rest: A) => R) => {
      return (name: string, ...rest: A): R => {
        wait(name);
        return verb(name, ...rest);
      };
    };
    return {
      ...task,
      step,
      poll: (name, options, fn) => {
        wait(name);
        return free.without(() => task.poll(name, options, watchStep(fn, true) as typeof fn));
      },
      elicit: Object.assign(named<unknown[], never>(task.elicit as never), {
        raw: named<unknown[], never>(task.elicit.raw as never),
      }),
      approve: named(task.approve),
      sample: named(task.sample),
      roots: named(task.roots),
      sleep: named(task.sleep),
      event: named<unknown[], never>(task.event as never),
    };
  }

  const run: TaskTool["run"] = (args, task) => {
    free.resume();
    return tool.run(args, watch(task));
  };
  return { tool: { ...tool, run }, observed: { names, repeatedWithoutKey, unstepped } };
}

/**
 * Tells whether the event loop turned while the handler was outside of steps. A handler that only repeats records
 * goes on without a turn, so one means that something real was awaited there.
 */
function createFreeTime() {
  let turns = 0;
  let spentMs = 0;
  let since = performance.now();
  let busy = 0;
  let pending: NodeJS.Immediate | undefined;

  function resume(): void {
    since = performance.now();
    pending = setImmediate(() => void turns++);
  }

  return {
    resume,
    /** Runs something whose time doesn't count, a step for instance. */
    async without<T>(work: () => Promise<T>): Promise<T> {
      clearImmediate(pending);
      if (busy === 0) spentMs += performance.now() - since;
      busy += 1;
      try {
        return await work();
      } finally {
        busy -= 1;
        if (busy === 0) resume();
      }
    },
    /** Milliseconds outside of steps up to now, or null if nothing was awaited there. */
    spent(): number | null {
      return turns === 0 ? null : Math.round(spentMs + (busy === 0 ? performance.now() - since : 0));
    },
  };
}
