import { chmod, mkdir } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { fileLog, type LoggedTask, type TaskError, type TaskLog } from "../client/index.ts";
import { CliError, exits } from "./exit.ts";

/** Where this user's state lives (XDG Base Directory Specification: a relative path is ignored). */
function stateFolder(given: string | undefined): string {
  if (given !== undefined) return path.resolve(given);
  const { XDG_STATE_HOME: home = "" } = process.env;
  return path.join(path.isAbsolute(home) ? home : path.join(homedir(), ".local/state"), "mcp-tasks");
}

const logFolder = (state: string | undefined) => path.join(stateFolder(state), "tasks");

/** The log to write to, in a folder that nobody else can read. Throws before anything is sent if that can't be had. */
export async function openLog(state: string | undefined): Promise<TaskLog> {
  const folder = logFolder(state);
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await chmod(folder, 0o700);
  } catch (cause) {
    const message = "The folder that remembers tasks can't be written. Name another one with --state DIR.";
    throw new CliError(exits.unexpected, "STATE_UNWRITABLE", message, { cause });
  }
  return fileLog(folder);
}

/**
 * What was started from here and is not known to be over, on one server or on all. `onDamage` is told of what the log
 * holds and can't be read.
 */
export async function startedFrom(
  state: string | undefined,
  address: string | undefined,
  onDamage?: (error: TaskError) => void,
): Promise<LoggedTask[]> {
  const all = await fileLog(logFolder(state)).list(onDamage);
  return all.filter(({ server }) => address === undefined || server.address === address);
}
