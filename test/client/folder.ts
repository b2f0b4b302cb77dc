import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

/** A folder that does not exist yet, and goes with its test. */
export async function folder() {
  const base = await mkdtemp(path.join(tmpdir(), "mcp-tasks-log-"));
  return {
    path: path.join(base, "deep", "er"),
    [Symbol.asyncDispose]: () => rm(base, { recursive: true, maxRetries: 3 }),
  };
}
