import { join } from "node:path";
import { expect } from "vitest";
import { startFixture } from "../fixture/start.ts";
import { wire } from "../wire/client.ts";
import { temporaryFolder } from "./harness.ts";
import { killRepeatedly } from "./kills.ts";
import { verifies } from "./verifies.ts";

const folder = temporaryFolder();
/** `npm test` kills twenty times, which takes some seconds; `KILLS=100 npx vitest run test/spec/durability.test.ts`. */
const kills = Number(process.env.KILLS ?? 20);
const lanes = 2;

verifies("create:durable-first", "a handle that arrived is readable at once on every other replica", async () => {
  const db = join(folder, "replicas.db");
  await using one = await startFixture(["--db", db, "--role", "front"]);
  await using two = await startFixture(["--db", db, "--role", "front"]);
  const here = wire(one.url);
  const there = wire(two.url);
  await Promise.all(
    Array.from({ length: 50 }, async () => {
      const taskId = await here.start("slow_compute");
      expect((await there.get(taskId)).body.result).toMatchObject({ taskId, status: "working" });
    }),
  );
});

verifies(
  "create:durable-first",
  `no acknowledged task is lost to a kill at the first byte of its answer (${kills} kills)`,
  async () => {
    const parts = Array.from({ length: lanes }, (_, i) =>
      killRepeatedly(folder, `lane ${i}`, Math.floor((kills + i) / lanes)),
    );
    const acknowledged = (await Promise.all(parts)).reduce((sum, count) => sum + count, 0);
    // An answer that the kill cut short promised nothing; nearly all arrive whole.
    expect(acknowledged).toBeGreaterThanOrEqual(Math.ceil(kills * 0.9));
  },
  600_000,
);
