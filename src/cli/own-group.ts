/**
 * Starts a program in a process group of its own: Ctrl-C at the terminal is for whoever waits for a task, and must not
 * end the server that runs it. A program by itself, started by `remote.ts`.
 */
import { spawn } from "node:child_process";

const [command = "", ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: "inherit", detached: true });
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"] as const) process.on(signal, () => child.kill(signal));
child.once("error", () => process.exit(127));
child.once("close", (code) => process.exit(code ?? 1));
