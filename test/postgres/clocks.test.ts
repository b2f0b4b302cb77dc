import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { startFixture } from "../fixture/start.ts";
import { wire } from "../wire/client.ts";
import { freshDatabase } from "./database.ts";

const skew = fileURLToPath(new URL("./skew.ts", import.meta.url));
const hour = 3_600_000;

test("BL-56: workers whose clocks are an hour off neither steal what others run nor end it early", async () => {
  const database = await freshDatabase();
  const folder = mkdtempSync(path.join(tmpdir(), "mcp-tasks-clocks-"));
  const file = path.join(folder, "journal");
  {
    await using front = await startFixture(["--db", database.url, "--role", "front", "--keep", "600000"]);
    const start = (skewMs: number) =>
      startFixture(["--db", database.url, "--role", "worker", "--lease", "2000", "--concurrency", "4"], {
        env: { NODE_OPTIONS: `--import=${skew}`, CLOCK_SKEW_MS: String(skewMs) },
      });
    await using ahead = await start(hour);
    await using behind = await start(-hour);
    const client = wire(front.url);
    const tags = Array.from({ length: 20 }, (_, n) => `t${n}`);
    const ids = await Promise.all(tags.map((tag) => client.start("journal", { path: file, tag, seconds: 1 })));
    for (const id of ids) expect(await client.until(id)).toMatchObject({ status: "completed" });
    const starts = readFileSync(file, "utf8")
      .split("\n")
      .map((line) => line.split(" "))
      .filter(([word]) => word === "start");
    expect(starts.map(([, tag = ""]) => tag).toSorted((a, b) => a.localeCompare(b))).toEqual(
      tags.toSorted((a, b) => a.localeCompare(b)),
    );
    // Both took part, or this would show nothing.
    expect(new Set(starts.map(([, , pid]) => Number(pid)))).toEqual(new Set([ahead.pid, behind.pid]));
    // Nobody's sweep thinks that they have been kept for long enough.
    for (const id of ids) expect((await client.get(id)).body.result).toMatchObject({ status: "completed" });
  }
  rmSync(folder, { recursive: true });
  await database.drop();
});
