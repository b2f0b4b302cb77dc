import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** Where a contender is: a module, and what it is called there. */
export interface Entry {
  readonly name: string;
  readonly file: string;
  readonly export: string;
}

/** One side of a contender, or both, in a process of its own; see `contender-process.ts` for what may be asked. */
export interface Side extends AsyncDisposable {
  ask(ask: string, count?: number): Promise<number>;
}

const program = fileURLToPath(new URL("contender-process.ts", import.meta.url));
const longestMs = 60_000;

export async function startSide(entry: Entry, place: string, ...sides: ("producer" | "worker")[]): Promise<Side> {
  const file = new URL(entry.file, import.meta.url).href;
  const execArgv = [
    "--conditions=mcp-tasks-dev",
    "--disable-warning=ExperimentalWarning",
    "--disable-warning=DeprecationWarning",
  ];
  const child = fork(program, [file, entry.export, place, ...sides], { execArgv, stdio: ["ignore", 2, 2, "ipc"] });
  const exited = once(child, "exit");
  async function reply(): Promise<number> {
    const signal = AbortSignal.timeout(longestMs);
    const gone = exited.then(() => [{ error: "its process ended" }]);
    const [said] = (await Promise.race([once(child, "message", { signal }), gone])) as [
      { readonly value?: number | null; readonly error?: string },
    ];
    if (said.error !== undefined) throw new Error(said.error);
    return said.value ?? NaN;
  }
  await reply();
  return {
    async ask(ask, count) {
      child.send({ ask, count });
      return await reply();
    },
    async [Symbol.asyncDispose]() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const late = setTimeout(() => child.kill("SIGKILL"), 10_000);
      child.send({ ask: "close" }, () => {});
      await exited;
      clearTimeout(late);
    },
  };
}

/** A word for why something did not run. */
export const reason = (thrown: unknown) =>
  thrown instanceof Error && thrown.name === "TimeoutError" ? `nothing for ${longestMs / 1000} s` : String(thrown);
