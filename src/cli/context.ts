import type { Exit, Line } from "./exit.ts";
import type { Interrupts } from "./interrupts.ts";
import type { CommonOptions } from "./options.ts";
import type { Output } from "./output.ts";

/** What a command works with. */
export interface Context {
  readonly options: CommonOptions;
  readonly out: Output;
  readonly interrupts: Interrupts;
  readonly line: Line;
}

/** Runs the body of a command: what it returns or throws is how the process ends. */
export type Run = (options: CommonOptions, body: (context: Context) => Promise<Exit>) => Promise<void>;
