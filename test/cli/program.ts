import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished } from "vitest";

export const root = fileURLToPath(new URL("../../", import.meta.url));
export const program = ["--conditions=mcp-tasks-dev", path.join(root, "src/cli/main.ts")];
export const fixtureProgram = ["--conditions=mcp-tasks-dev", path.join(root, "test/fixture/main.ts")];

export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly child: ChildProcess;
  readonly done: Promise<Ran>;
  /** Resolves when standard error holds this text. */
  said(text: string): Promise<void>;
}

/** How the program is run. */
export interface RunOptions {
  /** What standard input holds. By default it is an open pipe that says nothing. */
  readonly stdin?: string;
  /** A file that standard output goes to. */
  readonly stdout?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly cwd?: string;
}

/** A folder that goes when the test ends. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), "cli-test-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts the real program. Each test has a state folder of its own. */
export function start(args: readonly string[], options: RunOptions = {}): Running {
  // The tests themselves may have been started by npx.
  const { NO_COLOR: _, npm_command: _npm, ...inherited } = process.env;
  const file = options.stdout === undefined ? undefined : openSync(options.stdout, "w");
  const child = spawn(process.execPath, [...program, ...args], {
    cwd: options.cwd ?? root,
    stdio: ["pipe", file ?? "pipe", "pipe"],
    env: { ...inherited, NODE_COMPILE_CACHE: compiled, XDG_STATE_HOME: stateHome(), ...options.env },
  });
  if (file !== undefined) closeSync(file);
  if (options.stdin !== undefined) child.stdin?.end(options.stdin);
  let stdout = "";
  let stderr = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr?.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  const done = new Promise<Ran>((resolve) => child.once("close", (code) => resolve({ code, stdout, stderr })));
  return {
    child,
    done,
    said: (text) =>
      new Promise((resolve, reject) => {
        const look = () => stderr.includes(text) && resolve();
        child.stderr?.on("data", look);
        look();
        void done.then(() => reject(new Error(`It ended without saying ${JSON.stringify(text)}: ${stderr}`)));
      }),
  };
}

/** Runs the real program to its end. */
export const run = (args: readonly string[], options?: RunOptions): Promise<Ran> => start(args, options).done;

/** Saves most of the time that the program takes to start from its sources. */
const compiled = path.join(tmpdir(), `mcp-tasks-compiled-${process.getuid?.() ?? ""}`);

/** Each test has a state of its own. */
const states = new Map<string, string>();
function stateHome(): string {
  const { currentTestName = "" } = expect.getState();
  const home = states.get(currentTestName) ?? temporaryFolder();
  states.set(currentTestName, home);
  return home;
}

/** The one document on standard output, and the one error line on standard error, if any. */
export function parsed({ stdout, stderr }: Ran): { document: any; error: any } {
  const lines = stderr.split("\n").filter((line) => line !== "");
  if (lines.length > 1) throw new Error(`More than one line on standard error:\n${stderr}`);
  return { document: JSON.parse(stdout), error: lines[0] === undefined ? undefined : JSON.parse(lines[0]).error };
}

/** The documents of `watch --json`. */
export const documents = ({ stdout }: Ran): any[] =>
  stdout.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line)]));

/** The beginning of an id; one that looks like an option stays whole. */
export const shortened = (id: string): string => (id.startsWith("-") ? id : id.slice(0, 6));
