import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test, vi } from "vitest";
import { startFixture } from "../fixture/start.ts";
import { clients } from "./clients.ts";
import { channels } from "./channels.ts";

/**
 * One tool that takes its time and asks in the middle, through every client. Holds are short, so that several rounds
 * happen in a few seconds; with `MCP_TASKS_LONG=1` the tool takes 90 seconds, and holds and graces are the usual ones.
 */
const long = process.env.MCP_TASKS_LONG === "1";
const ms = long ? 90_000 : 2_400;
const flags = long ? ["--reply-grace", "200"] : ["--poll", "100", "--hold", "500"];

// All of them wait side by side.
if (long) vi.setConfig({ maxConcurrency: 2 * Object.keys(clients).length });

const root = mkdtempSync(path.join(tmpdir(), "mcp-tasks-hosts-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

describe.each(channels)("over %s", { concurrent: long }, (channel) => {
  test.each(Object.entries(clients))(
    "%s gets the right answer of a tool that asks in the middle",
    { timeout: long ? 240_000 : 60_000 },
    async (_name, use) => {
      const folder = mkdtempSync(path.join(root, channel));
      const all = ["--db", path.join(folder, "tasks.db"), ...flags];
      await using server = channel === "http" ? await startFixture(all) : null;
      const program = ["--conditions=mcp-tasks-dev", path.resolve("test/fixture/main.ts"), "--stdio", ...all];
      const begun = performance.now();
      const place = { folder, ...(server === null ? { args: program } : { url: server.url }) };
      const result = await use(place, "trip", { ms });
      expect(result.content).toEqual([{ type: "text", text: `Ada was away for ${ms} ms` }]);
      // Nothing but the work itself can have taken so long.
      expect(performance.now() - begun).toBeGreaterThan(ms);
    },
  );
});
