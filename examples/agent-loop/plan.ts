import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";

/** What the host has to do, and what came of it, in a file that is whole at any moment. */
export class Plan {
  readonly #file: string;
  readonly #results: Record<string, string | null>;

  constructor(file: string, steps: readonly string[]) {
    this.#file = file;
    mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
    this.#results = { ...Object.fromEntries(steps.map((step) => [step, null])), ...read(file) };
  }

  /** The steps that nothing has come of yet. */
  get open(): string[] {
    return Object.keys(this.#results).filter((step) => this.#results[step] === null);
  }

  resultOf(step: string): string {
    return this.#results[step] ?? "nothing";
  }

  /** Synchronous on purpose: the task leaves the log on the turn after its result was handed over. */
  done(step: string, result: string): void {
    this.#results[step] = result;
    writeFileSync(`${this.#file}.new`, JSON.stringify(this.#results), { mode: 0o600, flush: true });
    renameSync(`${this.#file}.new`, this.#file);
  }
}

function read(file: string): Record<string, string | null> {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Record<string, string | null>;
  } catch {
    return {};
  }
}
