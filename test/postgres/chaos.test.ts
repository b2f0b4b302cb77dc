import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { postgresDatabases } from "../chaos/postgres.ts";
import { runRound } from "../chaos/round.ts";

/** The short form; `npm run chaos -- --db postgres --rounds 30 --seed 1` is the long one. On a server of its own, to crash it. */
test("nothing acknowledged is lost, run twice or changed while processes, their network and the database itself break", async () => {
  const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-chaos-"));
  await using databases = await postgresDatabases(null);
  const { counts, violations, stories } = await runRound({ databases, seed: 7, tasks: 40, blows: 8, folder });
  expect(violations, stories.join("\n")).toEqual([]);
  expect(counts).toMatchObject({ tasks: 40, crashes: 1, cuts: 2, stalls: 1, stops: 2 });
  await rm(folder, { recursive: true, force: true });
}, 120_000);
