import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fileLog } from "../../../src/client/index.ts";
import { type Fixture, startFixture } from "../../fixture/start.ts";
import { type Captured, type Proxy, captureProxy } from "../../spec/proxy.ts";

/** MCP_TASKS_KILLS=200 for the long run. */
const kills = Number(process.env.MCP_TASKS_KILLS ?? 40);
const sideBySide = 3;
const keys = ["first", "second"];

let base = "";
let server: Fixture;
let proxy: Proxy;
beforeAll(async () => {
  base = await mkdtemp(path.join(tmpdir(), "mcp-tasks-kill-"));
  server = await startFixture(["--poll", "100"]);
  proxy = await captureProxy(server.url);
});
afterAll(async () => {
  await proxy[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
  await rm(base, { recursive: true, maxRetries: 3 });
});

/** A host process that is connected and waits for its cue. */
async function host(...args: string[]): Promise<ChildProcess> {
  const program = path.join(import.meta.dirname, "host.ts");
  const child = spawn(process.execPath, ["--conditions=mcp-tasks-dev", program, proxy.url, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  await once(createInterface(child.stdout), "line");
  return child;
}

/** Gives the cue, and kills after so long, if it is not done by then. */
async function killed(child: ChildProcess, after: number): Promise<void> {
  const closed = once(child, "close");
  child.stdin!.write("go\n");
  await Promise.race([delay(after), closed]);
  child.kill("SIGKILL");
  await closed;
}

async function finished(child: ChildProcess): Promise<void> {
  child.stdin!.write("go\n");
  expect(await once(child, "close")).toEqual([0, null]);
}

const lines = async (file: string) => (await readFile(file, "utf8").catch(() => "")).split("\n").filter(Boolean);

/** How long a call takes that nobody kills. */
async function undisturbed(): Promise<number> {
  const home = path.join(base, "undisturbed");
  await mkdir(home);
  const child = await host(path.join(home, "log"), home, "call", path.join(home, "server"));
  const began = performance.now();
  await finished(child);
  return performance.now() - began;
}

/** One call, killed once or twice, and then finished; what it left in the world. */
async function trial(name: string, moments: readonly number[]) {
  const home = path.join(base, name);
  await mkdir(home);
  const log = path.join(home, "log");
  const ran = path.join(home, "server");
  for (const [at, moment] of moments.entries())
    await killed(at === 0 ? await host(log, home, "call", ran) : await host(log, home, "resume"), moment);
  const left = (await fileLog(log).list()).map(({ state }) => state);
  const before = await lines(path.join(home, "journal"));
  await finished(await host(log, home, "resume"));
  const journal = await lines(path.join(home, "journal"));
  const said = await Promise.all(keys.map((key) => readFile(path.join(home, key), "utf8").catch(() => "")));
  return { left, before, journal, said, ran: await lines(ran), log: await fileLog(log).list(), calls: calls(ran) };
}

const calls = (ran: string) =>
  proxy.of("tools/call").filter(({ params }) => (params.arguments as { path?: string }).path === ran).length;

/** Every answer that went to the server for this key, of whatever trial. */
const sent = (key: string) =>
  proxy.of("tasks/update").flatMap(({ params }: Captured) => {
    const responses = params.inputResponses as Record<string, { content: { value: string } }>;
    return responses[key] === undefined ? [] : [{ taskId: params.taskId, value: responses[key].content.value }];
  });

function check({ left, before, journal, said, ran, log, calls }: Awaited<ReturnType<typeof trial>>): string {
  expect(calls).toBeLessThanOrEqual(1);
  expect(log).toEqual([]);
  const ends = journal.slice(before.length).filter((line) => /^(result|error)/.test(line));
  const right = `result first=${said[0]} second=${said[1]}`;
  for (const end of journal.filter((line) => line.startsWith("result"))) expect(end).toBe(right);
  for (const [at, key] of keys.entries()) {
    // A person who had said something was not asked again; one who was interrupted was.
    expect(journal.filter((line) => line === `answered ${key}`).length).toBeLessThanOrEqual(1);
    expect(journal.lastIndexOf(`asked ${key}`)).toBeLessThanOrEqual(Math.max(0, journal.indexOf(`answered ${key}`)));
    const answers = sent(key).filter(({ value }) => value === said[at]);
    expect(new Set(answers.map(({ taskId }) => taskId)).size).toBeLessThanOrEqual(1);
  }
  if (left.length === 0) {
    // Either nothing had been sent, or the host had its outcome.
    expect(ends).toEqual([]);
    if (calls === 0) return "before the call";
    expect([right, "error MAY_HAVE_STARTED"]).toContain(before.at(-1));
    return "after the outcome";
  }
  if (left[0] === "calling") {
    expect(ends).toEqual(["error MAY_HAVE_STARTED"]);
    return "between the call and its answer";
  }
  expect(ends).toEqual([right]);
  expect(calls).toBe(1);
  expect(ran).toEqual(["before", "mid", "after"]);
  return "during the task";
}

test(
  `a host that is killed at ${kills} random moments gets its result, of one call, each question answered once`,
  async () => {
    const took = await undisturbed();
    const when: Record<string, number> = {};
    let done = 0;
    async function lane(): Promise<void> {
      while (done < kills) {
        const twice = done % 4 === 3 && done + 2 <= kills;
        const moments = Array.from({ length: twice ? 2 : 1 }, () => Math.random() * took * 1.1);
        const name = `trial-${done}`;
        done += moments.length;
        const outcome = await trial(name, moments);
        const where = check(outcome);
        when[where] = (when[where] ?? 0) + 1;
      }
    }
    await Promise.all(Array.from({ length: sideBySide }, lane));
    expect(done).toBe(kills);
    expect(when["during the task"]).toBeGreaterThan(0);
    if (process.env.MCP_TASKS_KILLS !== undefined) process.stdout.write(`${JSON.stringify(when)} of ${took} ms\n`);
    // Nobody answered the same question with two different things.
    for (const key of keys) {
      const byTask = new Map<unknown, string>();
      for (const { taskId, value } of sent(key))
        expect(byTask.set(taskId, byTask.get(taskId) ?? value).get(taskId)).toBe(value);
    }
    expect(await readdir(base)).not.toEqual([]);
  },
  kills * 4_000,
);
