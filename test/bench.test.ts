import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const main = path.join(import.meta.dirname, "../bench/main.ts");
const run = (...args: string[]) =>
  promisify(execFile)(process.execPath, ["--conditions=mcp-tasks-dev", main, ...args], { timeout: 60_000 });

test("a benchmark prints one line of JSON, and ends well whatever it found", async () => {
  const { stdout } = await run("telemetry", "--json");
  expect(stdout.trim().split("\n")).toHaveLength(1);
  const found = JSON.parse(stdout) as Record<string, unknown>;
  expect(found).toEqual({
    name: "telemetry",
    machine: expect.any(String),
    versions: expect.objectContaining({ node: process.versions.node, sqlite: process.versions.sqlite }),
    rows: expect.arrayContaining([expect.objectContaining({ what: expect.any(String) })]),
    aims: [expect.objectContaining({ name: expect.any(String), aim: expect.any(String), met: expect.any(Boolean) })],
  });
});

test("a benchmark that doesn't exist is refused, and those that do are named", async () => {
  await expect(run("nope")).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining("telemetry") });
});
