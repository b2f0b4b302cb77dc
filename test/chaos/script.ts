import { createRandom, type Random } from "./random.ts";

/** What a handler is to do: scripts are the arguments of the tools, so that both sides know what must come out. */

export type Operation =
  /** `deaf` steps don't listen to their signal: what a cancel or a lost lease can't stop. */
  | { readonly do: "step"; readonly key: string; readonly ms: number; readonly deaf: boolean }
  | { readonly do: "once"; readonly key: string; readonly ms: number }
  | { readonly do: "failing"; readonly key: string; readonly ms: number }
  /** `timeoutMs` lets each of them wait for so long at most. */
  | {
      readonly do: "ask";
      readonly keys: readonly string[];
      readonly answered: boolean;
      readonly timeoutMs: number | null;
    }
  | { readonly do: "sleep"; readonly key: string; readonly ms: number }
  | { readonly do: "poll"; readonly key: string; readonly every: number; readonly ms: number }
  | { readonly do: "event"; readonly key: string }
  | { readonly do: "report"; readonly said: string }
  /** Throws out of the handler, so many times in all. */
  | { readonly do: "flaky"; readonly key: string; readonly times: number }
  | { readonly do: "die" }
  | { readonly do: "together"; readonly operations: readonly Operation[] };

export interface Script {
  readonly tag: string;
  readonly operations: readonly Operation[];
  readonly end: "return" | "throw" | "refuse";
  readonly kilobytes: number;
}

export const toolNames = ["script", "careful", "unwinding", "retrying", "gives_up", "bounded", "poison"] as const;
export type ToolName = (typeof toolNames)[number];

/** One task as the driver means to treat it. */
export interface Plan {
  readonly tool: ToolName;
  readonly script: Script;
  /** Milliseconds after the beginning of the round. */
  readonly createAfter: number;
  /** Milliseconds after the handle came, or null. */
  readonly cancelAfter: number | null;
  /** What the driver decides about this task. */
  readonly random: Random;
}

/** How long a task of the tool `bounded` may take, in milliseconds. */
export const boundMs = 1_500;

/** The plans of a round: the same for the same seed. */
export function createPlans(seed: number, count: number): Plan[] {
  const random = createRandom(seed);
  const plans = Array.from({ length: count }, (_, index) => plan(random.branch(index), `t${index}`, index));
  return plans.toSorted((a, b) => a.createAfter - b.createAfter);
}

function plan(random: Random, tag: string, index: number): Plan {
  // One in a hundred kills whoever runs it; it must not take the others along.
  const tool = index % 100 === 7 ? "poison" : pickTool(random);
  const cancelAfter =
    tool !== "poison" && random.chance(tool === "unwinding" ? 0.5 : 0.16) ? random.between(0, 3_000) : null;
  const createAfter = random.chance(0.5) ? 0 : random.between(0, 4_000);
  return { tool, script: script(random, tool, tag), createAfter, cancelAfter, random };
}

function pickTool(random: Random): ToolName {
  const draw = random.next();
  if (draw < 0.6) return "script";
  if (draw < 0.72) return "unwinding";
  if (draw < 0.82) return "retrying";
  if (draw < 0.86) return "gives_up";
  return draw < 0.94 ? "careful" : "bounded";
}

function script(random: Random, tool: ToolName, tag: string): Script {
  let keys = 0;
  const key = () => `k${++keys}`;
  const operations = Array.from({ length: random.between(2, 6) }, () => operation(random, tool, key));
  if (tool === "retrying")
    operations.splice(random.between(0, 2), 0, { do: "flaky", key: key(), times: random.between(1, 2) });
  if (tool === "poison") operations.splice(0, operations.length, { do: "die" });
  // Longer than a drain takes and than a cancelled handler is given.
  if (tool === "careful" && random.chance(0.6))
    operations.push({ do: "step", key: key(), ms: random.between(1_500, 2_200), deaf: true });
  if (tool === "bounded")
    operations.push(random.chance(0.5) ? { do: "ask", keys: [key()], answered: false, timeoutMs: null } : never(key));
  const ends = tool === "script" ? (["return", "return", "return", "return", "throw", "refuse"] as const) : null;
  const end = tool === "gives_up" ? "throw" : ends === null ? "return" : random.pick(ends);
  return { tag, operations, end, kilobytes: random.chance(0.3) ? random.between(1, 16) : 0 };
}

/** An event that nobody sends, for its key doesn't begin with `k`. */
const never = (key: () => string): Operation => ({ do: "event", key: `never ${key()}` });

function operation(random: Random, tool: ToolName, key: () => string): Operation {
  const draw = random.next();
  if (draw < 0.12) {
    const operations = Array.from({ length: random.between(2, 3) }, () => leaf(random, tool, key));
    return { do: "together", operations };
  }
  return leaf(random, tool, key);
}

function leaf(random: Random, tool: ToolName, key: () => string): Operation {
  const draw = random.next();
  if (draw < 0.35)
    return random.chance(0.06)
      ? { do: "step", key: key(), ms: random.between(800, 1_800), deaf: true }
      : { do: "step", key: key(), ms: random.between(0, 400), deaf: random.chance(0.5) };
  if (draw < 0.5) return { do: "once", key: key(), ms: random.between(0, 200) };
  if (draw < 0.68) {
    const keys = Array.from({ length: random.between(1, 3) }, key);
    // As long as an answer takes, about: some come first, and some don't.
    const timeoutMs = random.chance(0.3) ? random.between(50, 900) : null;
    return { do: "ask", keys, answered: true, timeoutMs };
  }
  if (draw < 0.78) return { do: "sleep", key: key(), ms: random.between(0, 800) };
  if (draw < 0.85) return { do: "poll", key: key(), every: random.between(20, 150), ms: random.between(0, 500) };
  if (draw < 0.93) return { do: "event", key: key() };
  // What failed is forgotten when the tool is tried again, and would fail differently then.
  if (draw < 0.97 && (tool === "script" || tool === "careful"))
    return { do: "failing", key: key(), ms: random.between(0, 60) };
  return { do: "report", said: `report ${random.between(1, 1_000)}` };
}

/** Every operation, those side by side too. */
export function flatten(operations: readonly Operation[]): Exclude<Operation, { do: "together" }>[] {
  return operations.flatMap((operation) => (operation.do === "together" ? flatten(operation.operations) : [operation]));
}

/** The text that makes a result some kilobytes long. */
export function filler({ tag, kilobytes }: Script): string {
  return `${tag} ${"0123456789abcdé\u0000".repeat(kilobytes * 64)}`;
}
