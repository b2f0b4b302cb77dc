import { spawn } from "node:child_process";
import { stripVTControlCharacters } from "node:util";

/**
 * A watchdog in the command's process group: it reads from us until we close the pipe or die, however suddenly, and
 * then kills the group. So even a killed server leaves no compiler running.
 */
const leash = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec "$@" 3<&-';

/** Runs a command in a process group of its own and resolves with its output. Throws when it fails or is aborted. */
export async function run(
  command: string,
  args: readonly string[],
  { cwd, signal }: { readonly cwd: string; readonly signal: AbortSignal },
): Promise<string> {
  signal.throwIfAborted();
  const child = spawn("sh", ["-c", leash, "sh", command, ...args], { cwd, detached: true });
  const letGo = () => void child.stdin.destroy();
  signal.addEventListener("abort", letGo);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (output += text));
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once("error", reject).once("exit", letGo).once("close", resolve);
    });
    signal.throwIfAborted();
    if (code === 0) return output;
    const end = stripVTControlCharacters(output).trimEnd().split("\n").slice(-20).join("\n");
    throw new Error(`${command} ${args.join(" ")} failed:\n${end}`);
  } finally {
    signal.removeEventListener("abort", letGo);
  }
}
