import { execFileSync } from "node:child_process";
import path from "node:path";
import { expect, test } from "vitest";
import { postgres } from "mcp-tasks/postgres";
import { asks, claimOne, create, owner, read } from "../../src/store/contract/kit.ts";
import { temporaryFolder } from "../cli/program.ts";
import { freshDatabase, query } from "./database.ts";

/** The major version of the pg_dump that is installed; 0 for none. */
function installed(): number {
  try {
    return Number(/ (\d+)/.exec(execFileSync("pg_dump", ["--version"], { encoding: "utf8" }))?.[1]);
  } catch {
    return 0;
  }
}

const [server] = await query<{ major: number }>("SELECT current_setting('server_version_num')::int / 10000 AS major");

// It dumps no server that is newer than itself.
test.skipIf(installed() < (server?.major ?? 0))(
  "a dump of a database in use is a point that tasks go on from",
  async () => {
    const [source, target] = [await freshDatabase(), await freshDatabase()];
    const file = path.join(temporaryFolder(), "tasks.dump");
    {
      await using before = postgres(source.url);
      const done = await create(before);
      await before.finish(await claimOne(before), { status: "completed", result: '"kept"' });
      const waiting = await create(before);
      await before.park(await claimOne(before), asks("size"), false);
      const running = await create(before);
      const held = await claimOne(before, { leaseMs: 1 });
      const queued = await create(before);
      execFileSync("pg_dump", ["--format=custom", "--schema=mcp_tasks", `--file=${file}`, source.url]);
      await before.answer(waiting.id, owner, { size: { action: "accept" } }, null);
      const later = await create(before);
      execFileSync("pg_restore", ["--exit-on-error", "--no-owner", `--dbname=${target.url}`, file]);

      await using after = postgres(target.url, { migrate: false });
      expect(await read(after, { taskId: done.id })).toMatchObject({ status: "completed", result: '"kept"' });
      expect(await read(after, { taskId: waiting.id })).toMatchObject({ status: "input_required" });
      expect(await after.get(later.id, owner)).toBeUndefined();
      const again = await claimOne(after);
      expect([again.taskId, again.epoch]).toEqual([running.id, held.epoch + 1]);
      expect((await claimOne(after)).taskId).toBe(queued.id);
      await after.answer(waiting.id, owner, { size: { action: "accept" } }, null);
      expect((await claimOne(after)).taskId).toBe(waiting.id);
      // Nothing of it keeps new ones from coming.
      await create(after);
    }
    await source.drop();
    await target.drop();
  },
);
