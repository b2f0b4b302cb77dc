import { Pool } from "pg";
import { postgres } from "../../src/store/postgres/index.ts";
import { manualClock } from "../../src/testing.ts";
import { freshSchema, query, url } from "./database.ts";

/** Two stores on one schema; from `hold` on, the verbs of `slow` keep the locks that they took, until they are let go. */
export async function openRace() {
  const schema = freshSchema();
  const clock = manualClock();
  const store = postgres(url, { schema, clock, pg: { application_name: schema } });
  const pool = new Pool({ connectionString: url, max: 1 });
  pool.on("error", () => {});
  const slow = postgres(pool, { schema, clock });
  await slow.nextDue();
  return {
    store,
    slow,
    clock,
    schema,
    async hold(): Promise<void> {
      await pool.query("BEGIN");
    },
    async letGo(how: "COMMIT" | "ROLLBACK" = "COMMIT"): Promise<void> {
      await pool.query(how);
    },
    /** Ends the connection that holds, as when its process dies. */
    async die(): Promise<void> {
      const { rows } = await pool.query("SELECT pg_backend_pid() AS pid");
      await query("SELECT pg_terminate_backend($1, 5000)", [(rows[0] as { pid: number }).pid]);
    },
    /** Whether a verb of `store` has to wait for what is held, as soon as that shows. */
    async waits(verb: Promise<unknown>): Promise<boolean> {
      let done = false;
      void verb.finally(() => (done = true));
      while (!done) {
        const blocked = "SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'";
        if ((await query(blocked, [schema])).length > 0) return true;
      }
      return false;
    },
    async [Symbol.asyncDispose]() {
      await slow[Symbol.asyncDispose]();
      await pool.end();
      await store[Symbol.asyncDispose]();
    },
  };
}
