import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { url } from "./database.ts";

const program = fileURLToPath(new URL("../store/process.ts", import.meta.url));
const children = new Set<ChildProcess>();

/** Another process at work on a schema. */
export const startProcess = (what: string, schema: string) => startProgram(program, [what, url, schema]);

/** A program of this folder's kind, after the words of `enter`: it prints a line for each thing that it did. */
export function startProgram(file: string, args: readonly string[], enter: readonly string[] = []) {
  const flags = ["--conditions=mcp-tasks-dev", "--disable-warning=ExperimentalWarning"];
  const [command = "", ...words] = [...enter, process.execPath, ...flags, file, ...args];
  const child = spawn(command, words, { stdio: "pipe" });
  children.add(child);
  const lines: string[] = [];
  let complaints = "";
  const output = createInterface(child.stdout);
  output.on("line", (line) => lines.push(line));
  child.stderr.on("data", (text) => (complaints += text));
  const closed = once(child, "close").then(([code]) => ({ code: code as number | null, complaints, lines }));
  return {
    child,
    lines,
    closed,
    async until(enough: () => boolean) {
      while (!enough()) {
        await Promise.race([once(output, "line"), closed]);
        if (child.exitCode !== null && !enough()) throw new Error(`The process ended: ${complaints}`);
      }
    },
  };
}

export function killProcesses(): void {
  for (const child of children) child.kill("SIGKILL");
  children.clear();
}
