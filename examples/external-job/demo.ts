/** Renders films while the render farm and the MCP server die, and checks that each was begun once. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/client";
import { TaskClient, type TaskRun, type TaskSnapshot } from "mcp-tasks/client";
import { freePort, program, type Program } from "./program.ts";

interface Job {
  readonly id: string;
  readonly status: string;
  readonly requests: number;
  readonly labels: { readonly task: string };
}

const data = await mkdtemp(path.join(tmpdir(), "external-job-"));
const [farmPort, serverPort] = [await freePort(), await freePort()];
const farmUrl = `http://127.0.0.1:${farmPort}`;
const farm = program({
  file: "jobs.ts",
  // It is slow to answer: time enough to kill who answers, or who waits for that.
  args: ["--data", data, "--port", farmPort, "--delay", "600"],
  onLine: (line) => console.log(`    farm: ${line}`),
});
const server = program({
  file: "server.ts",
  args: ["--data", data, "--port", serverPort, "--jobs", farmUrl],
  onLine: (line) => console.log(`    server: ${line}`),
});
const client = new TaskClient(new Client({ name: "render-demo", version: "1.0.0" }));

async function kill(name: string, victim: Program): Promise<void> {
  await victim.kill();
  console.log(`  ✗ the ${name} was killed`);
}

async function render(name: string, frames: number): Promise<TaskRun> {
  const onUpdate = ({ status, statusMessage }: TaskSnapshot) =>
    console.log(`  ${name} is ${status}${statusMessage === undefined ? "" : `, ${statusMessage}`}`);
  return client.start({ name, arguments: { scene: "sunrise", frames } }, { onUpdate });
}

async function jobOf({ taskId }: TaskRun): Promise<Job> {
  const jobs = (await (await fetch(`${farmUrl}/jobs`)).json()) as Job[];
  const [job, ...others] = jobs.filter(({ labels }) => labels.task === taskId);
  assert.deepEqual(others, [], "a task started a second job");
  assert(job !== undefined, "a task started no job");
  return job;
}

/** Resolves when the task has told of its job. */
async function rendering(run: TaskRun): Promise<void> {
  for await (const { statusMessage } of run) if (statusMessage?.includes("job-")) return;
}

async function check(run: TaskRun): Promise<void> {
  const { isError, content, structuredContent } = await run.result();
  assert.notEqual(isError, true, JSON.stringify(content));
  const { id, status, requests } = await jobOf(run);
  assert.deepEqual(structuredContent, { job: id, film: `https://films.example/${id}.mp4` });
  assert.equal(status, "done");
  assert.equal(requests, 2, `${id} was asked for ${requests} times`);
  console.log(`  ✓ ${id} was asked for twice, started once, and is done`);
}

/** Resolves when the task is cancelled. */
async function cancel(run: TaskRun): Promise<void> {
  await run.cancel();
  await assert.rejects(client.resume(run.taskId!).result(), { code: "CANCELLED" });
}

async function checkCancelled(run: TaskRun): Promise<void> {
  const { id, status } = await jobOf(run);
  assert.equal(status, "cancelled");
  console.log(`  ✓ ${id} was cancelled`);
}

async function demo(): Promise<void> {
  await Promise.all([farm.start(), server.start()]);
  await client.connect(`http://127.0.0.1:${serverPort}/mcp`);

  console.log("The farm dies when it has accepted a job, before it says so");
  let accepted = farm.says("accepted");
  const polled = await render("render_polled", 150);
  await accepted;
  await kill("farm", farm);
  await farm.start();
  await rendering(polled);

  console.log("The server dies before it hears that its job was accepted, and is away when the job ends");
  accepted = farm.says("accepted");
  const unheard = farm.says("callback not accepted");
  const pushed = await render("render_pushed", 50);
  await accepted;
  await kill("server", server);
  await unheard;
  await server.start();
  await Promise.all([check(polled), check(pushed)]);

  console.log("A task is cancelled while it waits for its job");
  const unwanted = await render("render_pushed", 3_000);
  await rendering(unwanted);
  await cancel(unwanted);
  await checkCancelled(unwanted);

  console.log("A task is cancelled while the farm is away, and then the server dies");
  const orphaned = await render("render_polled", 3_000);
  await rendering(orphaned);
  await kill("farm", farm);
  await cancel(orphaned);
  await kill("server", server);
  const stopped = farm.says("cancelled");
  await Promise.all([farm.start(), server.start()]);
  await stopped;
  await checkCancelled(orphaned);
}

/** It takes ten seconds where nothing else goes on. */
const late = setTimeout(60_000, undefined, { ref: false }).then(() => assert.fail("it took too long"));
process.once("SIGINT", () => process.exit(130));
try {
  await Promise.race([demo(), late]);
  console.log("Nothing was lost, and nothing was started twice.");
} catch (error) {
  console.error(`The demo failed: ${(error as Error).message}`);
  process.exitCode = 1;
}
await client.close();
await Promise.all([farm.kill(), server.kill()]);
await rm(data, { recursive: true, force: true });
// A demo that came too late may still be about to start something.
process.exit();
