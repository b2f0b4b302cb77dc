import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "@modelcontextprotocol/client";
import { TaskClient } from "mcp-tasks/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePort, program, type Program } from "../../examples/external-job/program.ts";

const execArgv = ["--conditions=mcp-tasks-dev"];
const demo = fileURLToPath(new URL("../../examples/external-job/demo.ts", import.meta.url));

test("jobs are started once and cancelled with their task, whoever is killed in between", async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [...execArgv, demo]);
  expect(stdout).toContain("job-1 was asked for twice, started once, and is done");
  expect(stdout).toContain("job-2 was asked for twice, started once, and is done");
  expect(stdout).toContain("job-3 was cancelled");
  expect(stdout).toContain("job-4 was cancelled");
  expect(stdout).toContain("Nothing was lost");
}, 70_000);

describe("the tools", () => {
  const programs: Program[] = [];
  let client: TaskClient;
  let data: string;
  let farm: string;
  let server: string;

  beforeAll(async () => {
    data = await mkdtemp(path.join(tmpdir(), "external-job-test-"));
    const [farmPort, serverPort] = [await freePort(), await freePort()];
    farm = `http://127.0.0.1:${farmPort}`;
    server = `http://127.0.0.1:${serverPort}`;
    programs.push(
      program({ file: "jobs.ts", args: ["--data", data, "--port", farmPort], execArgv }),
      program({ file: "server.ts", args: ["--data", data, "--port", serverPort, "--jobs", farm], execArgv }),
    );
    await Promise.all(programs.map((each) => each.start()));
    client = new TaskClient(new Client({ name: "test", version: "1.0.0" }));
    await client.connect(`${server}/mcp`);
  });

  afterAll(async () => {
    await client?.close();
    await Promise.all(programs.map((each) => each.kill()));
    await rm(data, { recursive: true, force: true });
  });

  const render = (name: string, scene: string, frames: number) =>
    client.callTool({ name, arguments: { scene, frames } }, { deadline: "20s" });

  test.each(["render_polled", "render_pushed"])("%s tells of a job that failed", async (name) => {
    const result = await render(name, "broken", 1);
    expect(result).toMatchObject({ isError: true });
    expect(JSON.stringify(result.content)).toMatch(/job-\d+ failed: The scene can't be rendered/);
  });

  test("what the job API refuses is not asked for again", async () => {
    const result = await render("render_polled", "endless", 100_000);
    expect(result).toMatchObject({ isError: true });
    expect(JSON.stringify(result.content)).toContain("The render farm answered 400");
  });

  test("who knows a task's id can't report the end of its job", async () => {
    const run = await client.start({ name: "render_pushed", arguments: { scene: "sunrise", frames: 50 } });
    const job = { id: "job-0", status: "done", frame: 1, frames: 1, labels: {}, film: "https://elsewhere.example" };
    const forged = { method: "POST", body: JSON.stringify(job), headers: { "content-type": "application/json" } };
    expect((await fetch(`${server}/hooks/${run.taskId}/forged`, forged)).status).toBe(404);
    const { structuredContent } = await run.result();
    expect(structuredContent).toMatchObject({ film: expect.stringContaining("films.example") as string });
  });

  test("the job API takes the same key for the same job, and for no other", async () => {
    const post = (frames: number) =>
      fetch(`${farm}/jobs`, {
        method: "POST",
        headers: { "idempotency-key": "same" },
        body: JSON.stringify({ scene: "sunrise", frames }),
      });
    const [first, again, other] = [await post(1), await post(1), await post(2)];
    expect([first.status, again.status, other.status]).toEqual([201, 201, 422]);
    expect(((await again.json()) as { id: string }).id).toBe(((await first.json()) as { id: string }).id);
  });
});
