import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFile, chmod, mkdir, readFile, readdir, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";
import { type LoggedTask, type TaskError, fileLog } from "../../src/client/index.ts";
import { thisProcess } from "../../src/liveness.ts";
import { readLines } from "../../src/client/record-line.ts";
import { entry } from "./entry.ts";
import { folder } from "./folder.ts";

const writer = path.join(import.meta.dirname, "log-writer.ts");

function run(...args: string[]): ChildProcess & { lines: string[] } {
  const child = spawn(process.execPath, ["--conditions=mcp-tasks-dev", writer, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines: string[] = [];
  createInterface(child.stdout).on("line", (line) => lines.push(line));
  return Object.assign(child, { lines });
}

/** What is in the file itself, in the order of its first records. */
const onDisk = async (place: string) =>
  [...readLines(await readFile(path.join(place, "tasks.log"), "utf8")).records.values()].map(({ task }) => task);

test("a log keeps its entries in order, replaces what is put again, and forgets what is removed", async () => {
  await using place = await folder();
  const log = fileLog(place.path);
  expect(await log.list()).toEqual([]);
  const odd = entry({ call: "odd", taskId: `../${"é\n\u0000".repeat(400)}`, startedAt: 3 });
  const first = entry({ call: "a", startedAt: 1, answers: { who: { action: "accept", content: { name: "Ada" } } } });
  const second = entry({ call: "b", startedAt: 2, taskId: null, state: "calling" });
  await Promise.all([odd, second, first].map((one) => log.put(one)));
  expect(await log.list()).toEqual([first, second, odd]);
  const changed: LoggedTask = { ...second, taskId: "task-2", state: "input_required", answers: { who: null } };
  await log.put(changed);
  await log.remove("a");
  await log.remove("a");
  expect(await log.list()).toEqual([changed, odd]);
  expect(await onDisk(place.path)).toEqual([odd, changed]);
  expect(fileLog(`${place.path}/../er`)).toBe(log);
});

test("of the answers to a task each record changes only those that it names, also when the file is written anew", async () => {
  await using place = await folder();
  const log = fileLog(place.path);
  const yes = { action: "accept" as const, content: {} };
  await log.put(entry({ answers: { one: yes } }), ["one"]);
  // Written by who knows nothing of the first.
  await log.put(entry({ answers: { two: yes } }), ["two"]);
  await log.put(entry({ state: "input_required" }), []);
  const answers = async () => (await log.list()).map((task) => task.answers);
  expect(await answers()).toEqual([{ one: yes, two: yes }]);
  await log.put(entry(), ["one"]);
  expect(await answers()).toEqual([{ two: yes }]);
  for (let n = 0; n < 300; n += 1) await log.put(entry({ tool: "x".repeat(300) }), []);
  expect((await stat(path.join(place.path, "tasks.log"))).size).toBeLessThan(64 * 1024);
  expect(await answers()).toEqual([{ two: yes }]);
  await log.put(entry());
  expect(await answers()).toEqual([{}]);
});

test("a log is readable by its owner alone, and made so where it was not", async () => {
  await using place = await folder();
  await mkdir(place.path, { recursive: true, mode: 0o755 });
  await chmod(place.path, 0o755);
  await writeFile(path.join(place.path, "tasks.log"), "", { mode: 0o644 });
  await fileLog(place.path).put(entry());
  expect((await stat(place.path)).mode & 0o777).toBe(0o700);
  const names = await readdir(place.path);
  for (const name of names) expect([name, (await stat(path.join(place.path, name))).mode & 0o077]).toEqual([name, 0]);
});

test("a torn tail and a damaged record are left out and reported, and cost nothing but themselves", async () => {
  await using place = await folder();
  const log = fileLog(place.path);
  for (const call of ["a", "b", "c"]) await log.put(entry({ call }));
  const file = path.join(place.path, "tasks.log");
  const text = await readFile(file, "utf8");
  // One flipped letter in the second record, and half a record at the end.
  await writeFile(file, text.replace('"call":"b"', '"call":"B"'));
  await appendFile(file, text.slice(0, 60));
  const damage: TaskError[] = [];
  const calls = async () => (await log.list((error) => damage.push(error))).map(({ call }) => call);
  expect(await calls()).toEqual(["a", "c"]);
  expect(damage).toMatchObject([{ code: "LOG_DAMAGED", data: { file, lines: [2, 4] } }]);
  expect(damage[0]?.message).not.toContain(place.path);
  await log.put(entry({ call: "d" }));
  expect(await calls()).toEqual(["a", "c", "d"]);
});

test("a file that is mostly of the past is written anew, and damaged lines are kept beside it", async () => {
  await using place = await folder();
  const log = fileLog(place.path);
  await log.put(entry({ call: "kept" }));
  const file = path.join(place.path, "tasks.log");
  await appendFile(file, "nonsense\n");
  const bulky = entry({ call: "bulky", answers: { note: { action: "accept", content: { text: "x".repeat(2_000) } } } });
  for (let at = 0; at < 40; at += 1) await log.put(bulky);
  await log.remove("bulky");
  expect((await stat(file)).size).toBeLessThan(64 * 1024);
  expect((await log.list()).map(({ call }) => call)).toEqual(["kept"]);
  expect(await readFile(path.join(place.path, "damaged.log"), "utf8")).toBe("nonsense\n");
});

test("records put together share a sync and all stand", async () => {
  await using place = await folder();
  const log = fileLog(place.path);
  await Promise.all(Array.from({ length: 500 }, (_, at) => log.put(entry({ call: `${at}`, startedAt: at }))));
  expect(await log.list()).toHaveLength(500);
});

test("processes take turns: what each was told is written is there", async () => {
  await using place = await folder();
  const writers = [1, 2, 3].map(() => run(place.path, "write", "40"));
  await Promise.all(writers.map((one) => once(one, "close")));
  const said = writers.flatMap(({ lines }) => lines);
  const gone = new Set(said.filter((line) => line.startsWith("-")).map((line) => line.slice(1)));
  const expected = said.filter((line) => !line.startsWith("-") && !gone.has(line));
  expect((await fileLog(place.path).list()).map(({ call }) => call).toSorted()).toEqual(expected.toSorted());
  expect(expected).toHaveLength(78);
});

test("a process that is killed while it writes loses nothing that it was told is written", async () => {
  await using place = await folder();
  const told = new Set<string>();
  for (let round = 0; round < 8; round += 1) {
    const victim = run(place.path, "write", "1000");
    await once(victim.stdout!, "data");
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 60));
    victim.kill("SIGKILL");
    await once(victim, "close");
    for (const line of victim.lines) if (!line.startsWith("-")) told.add(line);
    for (const line of victim.lines) if (line.startsWith("-")) told.delete(line.slice(1));
    // A removal that was under way may have come through unsaid.
    const last = victim.lines.at(-1);
    if (last !== undefined && Number(last.split("-")[1]) % 3 === 0) told.delete(last);
  }
  await fileLog(place.path).put(entry({ call: "after" }));
  const calls = new Set((await fileLog(place.path).list()).map(({ call }) => call));
  expect([...told].filter((call) => !calls.has(call))).toEqual([]);
});

test("a writer waits for another's turn, takes over from a dead one, and gives up on one that never ends", async () => {
  await using place = await folder();
  const holder = run(place.path, "hold");
  await once(holder.stdout!, "data");
  expect(holder.lines).toEqual(["held"]);
  const waiting = fileLog(place.path).put(entry());
  setTimeout(() => holder.stdin!.write("go\n"), 100);
  await waiting;
  const dead = run(place.path, "hold");
  await once(dead.stdout!, "data");
  dead.kill("SIGKILL");
  await once(dead, "close");
  const began = performance.now();
  await fileLog(place.path).put(entry({ call: "over" }));
  expect(performance.now() - began).toBeLessThan(1_000);
  const stubborn = run(place.path, "hold");
  await once(stubborn.stdout!, "data");
  const thrown = { code: "LOG_UNAVAILABLE", message: expect.stringContaining("Another process") };
  await expect(fileLog(place.path).put(entry({ call: "late" }))).rejects.toMatchObject(thrown);
  stubborn.kill("SIGKILL");
  await once(stubborn, "close");
  await fileLog(place.path).put(entry({ call: "last" }));
  expect((await fileLog(place.path).list()).map(({ call }) => call)).toEqual(["call-1", "over", "last"]);
});

test("entries of a living process are marked, and free when it has ended", async () => {
  await using place = await folder();
  const other = run(place.path, "write", "1000000");
  await once(other.stdout!, "data");
  await expect.poll(() => other.lines.length).toBeGreaterThan(5);
  const marked = (await fileLog(place.path).list()).map(({ heldElsewhere }) => heldElsewhere);
  expect(marked.length).toBeGreaterThan(0);
  expect(new Set(marked)).toEqual(new Set([true]));
  other.kill("SIGKILL");
  await once(other, "close");
  expect(new Set((await fileLog(place.path).list()).map((one) => one.heldElsewhere))).toEqual(new Set([undefined]));
});

test("a call stays with the living process that has it, whoever else notes what becomes of it", async () => {
  await using place = await folder();
  const other = run(place.path, "write", "1000000");
  await once(other.stdout!, "data");
  const log = fileLog(place.path);
  // Its first entry it takes out again, its second one it leaves.
  const second = async () => (await log.list()).find(({ call }) => call === `${other.pid}-1`);
  await expect.poll(second).toBeDefined();
  const found = await second();
  await log.put({ ...found!, state: "input_required" });
  const noted = async () => (await log.list()).find(({ call }) => call === found!.call);
  expect(await noted()).toEqual({ ...found, state: "input_required", heldElsewhere: true });
  other.kill("SIGKILL");
  await once(other, "close");
  await log.put({ ...found!, state: "completed" });
  expect(await noted()).toEqual({ ...found, state: "completed", heldElsewhere: undefined });
  expect(await readFile(path.join(place.path, "tasks.log"), "utf8")).toContain(JSON.stringify(thisProcess()));
});

test("a log that can't be written says so, and not where", async () => {
  await using place = await folder();
  await mkdir(path.dirname(place.path), { recursive: true });
  await writeFile(place.path, "a file where the folder should be");
  const error: TaskError = await fileLog(place.path)
    .put(entry())
    .then(
      () => undefined as never,
      (thrown: TaskError) => thrown,
    );
  expect(error).toMatchObject({ code: "LOG_UNAVAILABLE" });
  expect(error.message).not.toContain(place.path);
});
