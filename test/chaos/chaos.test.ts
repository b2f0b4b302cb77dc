import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runRound } from "./round.ts";
import { sqliteDatabases } from "./sqlite.ts";

/** The short form; `npm run chaos -- --rounds 100 --seed 1` is the long one. */
test("nothing acknowledged is lost, run twice or changed while workers and front end are killed and stopped", async () => {
  const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-chaos-"));
  const { counts, violations, stories } = await runRound({
    databases: sqliteDatabases,
    seed: 7,
    tasks: 50,
    blows: 6,
    folder,
  });
  expect(violations, stories.join("\n")).toEqual([]);
  expect(counts.tasks).toBe(50);
  expect(counts.timeouts).toBeGreaterThan(0);
  expect(counts.kills + counts.stops + counts.drains).toBeGreaterThanOrEqual(6);
  await rm(folder, { recursive: true, force: true });
}, 60_000);
