/** Renders three films while the render farm and the MCP server die, and checks that each was begun once. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/client";
import { TaskClient, type TaskRun } from "mcp-tasks/client";

interface Job {
  readonly id: string;
  readonly status: string;
  readonly requests: number;
  readonly labels: { readonly task: string };
}

const data = await mkdtemp(path.join(tmpdir(), "external-job-"));
const signal = AbortSignal.timeout(28_000);

/** A program of this folder, which can be killed and started again. */
function program(name: string, file: string, args: readonly string[]) {
  const watchers = new Set<(line: string) => void>();
  let child: ChildProcess | undefined;

  /** Resolves at the next line that says this. */
  function says(text: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const watch = (line: string) => line.includes(text) && watchers.delete(watch) && resolve();
      watchers.add(watch);
      signal.addEventListener("abort", () => reject(new Error(`${name} never said "${text}"`)), { once: true });
    });
  }

  return {
    says,
    async start() {
      const ready = says("Listening on");
      const script = fileURLToPath(new URL(file, import.meta.url));
      const started = spawn(process.execPath, [...process.execArgv, script, "--data", data, ...args], {
        stdio: ["ignore", "pipe", process.env.DEBUG ? "inherit" : "ignore"],
      });
      child = started;
      createInterface(started.stdout).on("line", (line) => {
        console.log(`    ${name}: ${line}`);
        for (const watch of watchers) watch(line);
      });
      await ready;
    },
    async kill() {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
      const gone = once(child, "exit");
      child.kill("SIGKILL");
      await gone;
      console.log(`  ✗ ${name} was killed`);
    },
  };
}

async function freePort(): Promise<number> {
  await using server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as { port: number }).port;
}

const [farmPort, serverPort] = [String(await freePort()), String(await freePort())];
const farmUrl = `http://127.0.0.1:${farmPort}`;
// It is slow to answer: time enough to kill who answers, or who waits for that.
const farm = program("farm", "jobs.ts", ["--port", farmPort, "--delay", "200"]);
const server = program("server", "server.ts", ["--port", serverPort, "--jobs", farmUrl]);
const client = new TaskClient(new Client({ name: "render-demo", version: "1.0.0" }));

async function render(name: string, frames: number): Promise<TaskRun> {
  const onUpdate = ({ status, statusMessage }: { status: string; statusMessage?: string | undefined }) =>
    console.log(`  ${name} is ${status}${statusMessage === undefined ? "" : `, ${statusMessage}`}`);
  return client.start({ name, arguments: { scene: "sunrise", frames } }, { onUpdate, signal });
}

async function jobOf({ taskId }: TaskRun): Promise<Job> {
  const jobs = (await (await fetch(`${farmUrl}/jobs`)).json()) as Job[];
  const [job, ...others] = jobs.filter(({ labels }) => labels.task === taskId);
  assert.deepEqual(others, [], "a task started a second job");
  assert(job !== undefined, "a task started no job");
  return job;
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

async function demo(): Promise<void> {
  await Promise.all([farm.start(), server.start()]);
  await client.connect(`http://127.0.0.1:${serverPort}/mcp`);

  console.log("The farm dies when it has accepted a job, before it says so");
  let accepted = farm.says("accepted");
  const polled = await render("render_polled", 100);
  await accepted;
  await farm.kill();
  accepted = farm.says("accepted");
  await farm.start();
  await accepted;

  console.log("The server dies before it hears that its job was accepted, and is away when the job ends");
  accepted = farm.says("accepted");
  const unheard = farm.says("callback not accepted");
  const pushed = await render("render_pushed", 50);
  await accepted;
  await server.kill();
  await unheard;
  await server.start();
  await Promise.all([check(polled), check(pushed)]);

  console.log("A task is cancelled while it waits for its job");
  const cancelled = await render("render_polled", 3_000);
  for await (const { statusMessage } of cancelled) if (statusMessage?.includes("frame")) break;
  const stopped = farm.says("cancelled");
  await cancelled.cancel();
  await assert.rejects(client.resume(cancelled.taskId!).result(), { code: "CANCELLED" });
  await stopped;
  assert.equal((await jobOf(cancelled)).status, "cancelled");
  console.log("  ✓ its job was cancelled");
}

try {
  await demo();
  console.log("Nothing was lost, and nothing was started twice.");
} catch (error) {
  console.error(`The demo failed: ${(error as Error).message}`);
  process.exitCode = 1;
} finally {
  await client.close();
  await Promise.all([farm.kill(), server.kill()]);
  await rm(data, { recursive: true, force: true });
}
