import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export interface ProgramOptions {
  readonly file: "jobs.ts" | "server.ts";
  readonly args: readonly string[];
  /** Told each line that it prints. */
  readonly onLine?: (line: string) => void;
  /** What to tell Node. */
  readonly execArgv?: readonly string[];
}

/** A program of this folder, to be killed and started again. */
export function program({ file, args, onLine = () => {}, execArgv = process.execArgv }: ProgramOptions) {
  const watchers = new Set<(line: string) => void>();
  let child: ChildProcess | undefined;
  process.once("exit", () => child?.kill("SIGKILL"));

  /** Resolves at the next line that says this. */
  function says(text: string): Promise<void> {
    return new Promise((resolve) => {
      const watch = (line: string) => line.includes(text) && watchers.delete(watch) && resolve();
      watchers.add(watch);
    });
  }

  return {
    says,
    /** Resolves when it listens. */
    async start(): Promise<void> {
      const script = fileURLToPath(new URL(file, import.meta.url));
      const started = spawn(process.execPath, [...execArgv, script, ...args], { stdio: ["ignore", "pipe", "ignore"] });
      child = started;
      const ended = once(started, "exit").then(([code]) => {
        throw new Error(`${file} ended with ${code}`);
      });
      ended.catch(() => {});
      createInterface(started.stdout).on("line", (line) => {
        onLine(line);
        for (const watch of watchers) watch(line);
      });
      await Promise.race([says("Listening on"), ended]);
    },
    /** Kills it, and resolves when it is gone. */
    async kill(): Promise<void> {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
      const gone = once(child, "exit");
      child.kill("SIGKILL");
      await gone;
    },
  };
}

export type Program = ReturnType<typeof program>;

/** A port that nobody uses at this moment. */
export async function freePort(): Promise<string> {
  await using server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  return String((server.address() as AddressInfo).port);
}
