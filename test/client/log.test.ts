import { mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { fileLog } from "../../src/client/index.ts";
import { fakeServer } from "./fake-http.ts";
import { connected } from "./setup.ts";
import { ack, completed, created, text, working } from "./wire.ts";

async function folder() {
  const base = await mkdtemp(path.join(tmpdir(), "mcp-tasks-log-"));
  return { path: path.join(base, "deep", "er"), [Symbol.asyncDispose]: () => rm(base, { recursive: true }) };
}

test("a log keeps its tasks in order, forgets what is removed, and survives a damaged file", async () => {
  await using place = await folder();
  const log = fileLog(place.path);
  expect(await log.list()).toEqual([]);
  const odd = { taskId: `../${"é".repeat(400)}`, tool: "x", startedAt: 3 };
  const [first, second] = [
    { taskId: "a", tool: "x", startedAt: 1 },
    { taskId: "b", tool: "y", startedAt: 2 },
  ];
  await Promise.all([odd, second, first].map((task) => log.add(task)));
  await log.add(first);
  await writeFile(path.join(place.path, "broken.json"), "{");
  expect(await fileLog(place.path).list()).toEqual([first, second, odd]);
  await log.remove("a");
  await log.remove("a");
  expect(await log.list()).toEqual([second, odd]);
  for (const name of await readdir(place.path)) {
    if (name !== "broken.json") expect((await stat(path.join(place.path, name))).mode & 0o077).toBe(0);
  }
});

test("a task that was waited for when its client went is followed by the next one, and then forgotten", async () => {
  await using place = await folder();
  let over = false;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") reply.result(created());
    else if (method === "tasks/get") reply.result(over ? completed("after the crash") : working());
    else reply.result(ack);
  });
  const log = fileLog(place.path);
  const first = await connected(server, { log });
  const run = await first.start({ name: "slow" });
  await first.close();
  expect(await log.list()).toMatchObject([{ taskId: run.taskId, tool: "slow" }]);
  over = true;
  const second = await connected(server, { log: fileLog(place.path) });
  const runs = await second.resumeAll();
  expect(await Promise.all(runs.map((one) => one.result()))).toEqual([text("after the crash")]);
  await expect.poll(() => log.list()).toEqual([]);
  await (await second.start({ name: "slow" })).cancel();
  await expect.poll(() => log.list()).toEqual([]);
  expect(server.of("tools/call")).toHaveLength(2);
  await second.close();
});

test("a task that the server no longer knows is forgotten, and a log that fails costs nobody a task", async () => {
  await using place = await folder();
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") reply.result(created());
    else reply.error(-32602, "Task not found");
  });
  const log = fileLog(place.path);
  await log.add({ taskId: "task-1", tool: "x", startedAt: 0 });
  const tasks = await connected(server, { log });
  const [run] = await tasks.resumeAll();
  await expect(run?.result()).rejects.toMatchObject({ code: "TASK_NOT_FOUND" });
  await expect.poll(() => log.list()).toEqual([]);
  await tasks.close();
  const errors: unknown[] = [];
  const full = { ...log, add: () => Promise.reject(new Error("disk full")) };
  const careless = await connected(server, { log: full, onError: (error) => errors.push(error) });
  expect((await careless.start({ name: "x" })).taskId).toBe("task-1");
  expect(errors).toMatchObject([{ message: "disk full" }]);
  await careless.close();
});
