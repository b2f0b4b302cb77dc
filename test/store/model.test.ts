import fc from "fast-check";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, test } from "vitest";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { manualClock } from "../../src/testing.ts";
import { move, play } from "./moves.ts";

const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-model-"));
afterAll(() => rmSync(folder, { recursive: true }));
let files = 0;

test.each([
  ["two stores on one file do what the model does", 40, () => join(folder, `${files++}.db`)],
  ["a store in memory does what the model does", 150, () => ":memory:"],
])("%s", { timeout: 120_000 }, async (_, numRuns, name) => {
  await fc.assert(
    fc.asyncProperty(fc.array(move, { maxLength: 60, size: "max" }), async (moves) => {
      const clock = manualClock();
      const file = name();
      await using here = sqlite(file, { clock });
      // What is in memory has one store only; there, two that race are two in one turn.
      await using other = file === ":memory:" ? null : sqlite(file, { clock });
      await play(moves, [here, other ?? here], clock);
    }),
    { numRuns },
  );
});
