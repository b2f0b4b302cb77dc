import fc from "fast-check";
import { Pool } from "pg";
import { afterAll, test } from "vitest";
import { postgres } from "../../src/store/postgres/index.ts";
import { manualClock } from "../../src/testing.ts";
import { move, play } from "../store/moves.ts";
import { dropSchemas, empty, freshSchema, url } from "./database.ts";

const schema = freshSchema();
const pool = new Pool({ connectionString: url, max: 8 });

afterAll(async () => {
  await pool.end();
  await dropSchemas();
});

test("two stores on one database do what the model does", { timeout: 120_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(move, { maxLength: 60, size: "max" }), async (moves) => {
      const clock = manualClock();
      await empty(pool, schema);
      await using here = postgres(pool, { schema, clock });
      await using there = postgres(pool, { schema, clock });
      await play(moves, [here, there], clock, "by task");
    }),
    // A race doesn't come again while a counterexample shrinks.
    { numRuns: 40, endOnFailure: true },
  );
});
