import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const file = fileURLToPath(new URL("server.ts", import.meta.url));

export interface ServerProcess {
  readonly url: string;
  /** Sends a signal and waits for the end. */
  stop(signal: NodeJS.Signals): Promise<void>;
}

/** Starts `server.ts` as a process of its own; `ran` is told of each stage that it runs. It dies with this process. */
export async function startServer(args: readonly string[], ran: (stage: string) => void): Promise<ServerProcess> {
  const child = spawn(process.execPath, [...process.execArgv, file, ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const url = await new Promise<string>((resolve, reject) => {
    void exited.then(() => reject(new Error("The server did not start")));
    createInterface(child.stdout).on("line", (line) => {
      const [, what, value = ""] = /^(running|Listening on) (.+)$/.exec(line) ?? [];
      if (what === "running") ran(value);
      else if (what === "Listening on") resolve(value);
    });
  });
  return {
    url,
    async stop(signal) {
      process.off("exit", kill);
      child.kill(signal);
      await exited;
    },
  };
}
