import { spawn, type ChildProcess, type SpawnOptions } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  copyFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  openSync,
  writeSync,
  closeSync,
  mkdirSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { TaskError } from "../../src/errors.ts";
import {
  asks,
  begin,
  beginAsking,
  claim,
  claimOne,
  create,
  form,
  hour,
  newTask,
  owner,
  read,
  waits,
} from "../../src/store/contract/kit.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { manualClock } from "../../src/testing.ts";

const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-sqlite-"));
const program = fileURLToPath(new URL("process.ts", import.meta.url));
const children = new Set<ChildProcess>();
let files = 0;
const fresh = () => join(folder, `${files++}.db`);

afterEach(() => {
  for (const child of children) child.kill("SIGKILL");
  children.clear();
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Another process at work on a file. */
function start(what: string, file: string, options: SpawnOptions & { readonly shell?: string } = {}) {
  const args = ["--conditions=mcp-tasks-dev", "--disable-warning=ExperimentalWarning", program, what, file];
  const { shell, ...rest } = options;
  const child =
    shell === undefined
      ? spawn(process.execPath, args, { stdio: "pipe", ...rest })
      : spawn("/bin/sh", ["-c", `${shell}; exec "$@"`, "sh", process.execPath, ...args], { stdio: "pipe", ...rest });
  children.add(child);
  const lines: string[] = [];
  let complaints = "";
  const output = createInterface(child.stdout!);
  output.on("line", (line) => lines.push(line));
  child.stderr!.on("data", (text) => (complaints += text));
  const closed = once(child, "close").then(([code]) => ({ code: code as number | null, complaints, lines }));
  return {
    child,
    lines,
    closed,
    async until(enough: () => boolean) {
      while (!enough()) {
        await Promise.race([once(output, "line"), closed]);
        if (child.exitCode !== null && !enough()) throw new Error(`The process ended: ${complaints}`);
      }
    },
  };
}

function inspect<T>(file: string, look: (db: DatabaseSync) => T): T {
  const db = new DatabaseSync(file);
  try {
    return look(db);
  } finally {
    db.close();
  }
}

/** The file is sound, and each unfinished task is where something will find it. */
function assertSound(file: string): void {
  inspect(file, (db) => {
    expect(db.prepare("PRAGMA integrity_check").all()).toEqual([{ integrity_check: "ok" }]);
    expect(db.prepare("PRAGMA foreign_key_check").all()).toEqual([]);
    const stranded = `
      SELECT id FROM task WHERE CASE status
        WHEN 'working' THEN NOT EXISTS (SELECT 1 FROM activation WHERE task = seq)
          AND NOT EXISTS (SELECT 1 FROM event WHERE task = seq AND awaited = 1 AND value IS NULL)
        WHEN 'input_required' THEN NOT EXISTS (SELECT 1 FROM input WHERE task = seq AND open = 1)
          OR EXISTS (SELECT 1 FROM activation WHERE task = seq AND state <> 'leased')
        ELSE EXISTS (SELECT 1 FROM activation WHERE task = seq) END`;
    expect(db.prepare(stranded).all()).toEqual([]);
  });
}

async function eventually<T>(look: () => Promise<T | undefined>): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    await pause(5);
  }
}

describe("several processes on one file", () => {
  test("four workers run each of 400 tasks exactly once, and none hears of a lock", async () => {
    const file = fresh();
    await using store = sqlite(file);
    const workers = [1, 2, 3, 4].map(() => start("work", file));
    await Promise.all(workers.map(({ lines, until }) => until(() => lines.length === 1)));
    for (let n = 0; n < 100; n++) await Promise.all([1, 2, 3, 4].map(() => create(store)));
    await eventually(async () => ((await store.list({ limit: 1, status: "working" })).length === 0 ? true : undefined));
    for (const { child } of workers) child.stdin!.end();
    const ends = await Promise.all(workers.map(({ closed }) => closed));
    expect(ends.map(({ code, complaints }) => [code, complaints])).toEqual(ends.map(() => [0, ""]));
    const runs = ends.flatMap(({ lines }) => lines.slice(1));
    expect(runs).toHaveLength(400);
    expect(new Set(runs).size).toBe(400);
    assertSound(file);
  });

  test("six processes can open a new file at the same moment", async () => {
    const file = fresh();
    const openers = Array.from({ length: 6 }, () => start("open", file));
    await Promise.all(openers.map(({ lines, until }) => until(() => lines.length === 1)));
    for (const { child } of openers) child.stdin!.write("go\n");
    const ends = await Promise.all(openers.map(({ closed }) => closed));
    expect(ends.map(({ code, complaints }) => [code, complaints])).toEqual(ends.map(() => [0, ""]));
    await using store = sqlite(file);
    expect(await store.list({ limit: 10 })).toHaveLength(6);
    assertSound(file);
  });

  test("what was acknowledged is there after a kill, and the file is sound", async () => {
    const file = fresh();
    for (let round = 0; round < 5; round++) {
      const writer = start("write", file);
      await writer.until(() => writer.lines.length >= 30 + round * 7);
      writer.child.kill("SIGKILL");
      const { lines } = await writer.closed;
      await using store = sqlite(file);
      for (const [status, taskId] of lines.map((line) => line.split(" "))) {
        const task = await read(store, { taskId: taskId! });
        if (status === "completed") expect(task.status).toBe("completed");
      }
    }
    assertSound(file);
  });

  test("a reader in another process never sees half a change", async () => {
    const file = fresh();
    await using store = sqlite(file);
    const writer = start("write", file);
    await writer.until(() => writer.lines.length > 0);
    const seen = new Set<string>();
    const end = performance.now() + 1_500;
    while (performance.now() < end) {
      for (const task of await store.list({ limit: 20 })) {
        seen.add(task.status);
        expect(Object.keys(task.inputRequests).length > 0).toBe(task.status === "input_required");
        expect(task.result !== null).toBe(task.status === "completed");
      }
      await pause(0);
    }
    expect([...seen].toSorted()).toEqual(["completed", "input_required", "working"]);
  });

  test("a verb waits for another process that writes, and holds up nothing meanwhile", async () => {
    const file = fresh();
    await using store = sqlite(file);
    const other = new DatabaseSync(file);
    other.exec("BEGIN IMMEDIATE");
    let done = false;
    const created = create(store).then((task) => ((done = true), task));
    const began = performance.now();
    for (let n = 0; n < 20; n++) await pause(5);
    expect(performance.now() - began).toBeLessThan(1_000);
    expect(done).toBe(false);
    other.exec("COMMIT");
    other.close();
    await read(store, { taskId: (await created).id });
  });

  test("a verb that can't get through in time says so, and has changed nothing", async () => {
    const file = fresh();
    await using store = sqlite(file, { busyMs: 60 });
    const other = new DatabaseSync(file);
    other.exec("BEGIN IMMEDIATE");
    const task = newTask();
    const verbs = [store.create(task, null), create(store)];
    for (const verb of verbs) await expect(verb).rejects.toMatchObject({ name: "TaskError", code: "STORE_BUSY" });
    other.exec("COMMIT");
    other.close();
    expect(await store.get(task.id, owner)).toBeUndefined();
    await create(store);
  });

  test("an open store keeps no process alive", async () => {
    const file = fresh();
    expect(await start("leave", file).closed).toMatchObject({ code: 0, complaints: "" });
    await using store = sqlite(file);
    expect(await store.list({ limit: 2 })).toHaveLength(1);
  });
});

describe("changes of other processes", () => {
  test("are told to whoever watches, all of them", async () => {
    const file = fresh();
    await using here = sqlite(file);
    await using there = sqlite(file);
    const heard = new Set<string | null>();
    here.watch((id) => heard.add(id));
    for (let n = 0; n < 20; n++) {
      // An own change that comes right after another's must not hide it.
      const other = await create(there);
      const own = await create(here);
      await eventually(async () => (heard.has(own.id) && heard.has(other.id)) || undefined);
    }
  });

  test("are told as one hint when they are many", async () => {
    const file = fresh();
    await using here = sqlite(file);
    await using there = sqlite(file);
    const heard: (string | null)[] = [];
    here.watch((id) => heard.push(id));
    await Promise.all(Array.from({ length: 600 }, () => create(there)));
    await eventually(async () => heard.includes(null) || undefined);
    heard.length = 0;
    const { id } = await create(there);
    await eventually(async () => heard.includes(id) || undefined);
  });

  test("are not missed after the newest task was purged", async () => {
    const file = fresh();
    await using here = sqlite(file);
    await using there = sqlite(file);
    const heard = new Set<string | null>();
    here.watch((id) => heard.add(id));
    const { id } = await create(there, { keepMs: 0 });
    await there.requestCancel(id, owner, 0);
    await eventually(async () => heard.has(id) || undefined);
    expect((await there.sweep()).purged).toHaveLength(1);
    const next = await create(there);
    await eventually(async () => heard.has(next.id) || undefined);
  });
});

describe("leases and processes", () => {
  test("a dead process's task is taken over at once, a live one's is not", async () => {
    const file = fresh();
    await using store = sqlite(file);
    const { id } = await create(store);
    const holder = start("hold", file);
    await holder.until(() => holder.lines.length === 1);
    expect(holder.lines).toEqual([id]);
    expect(await claim(store)).toHaveLength(0);
    holder.child.kill("SIGSTOP");
    expect(await claim(store)).toHaveLength(0);
    holder.child.kill("SIGKILL");
    await holder.closed;
    await using restarted = sqlite(file);
    expect(await claimOne(restarted)).toMatchObject({ taskId: id, epoch: 2, attempt: 2 });
  });

  test("a worker that has been running all the time notices a dead one, too", async () => {
    const file = fresh();
    await using store = sqlite(file);
    const { id } = await create(store);
    const holder = start("hold", file);
    await holder.until(() => holder.lines.length === 1);
    expect(await claim(store)).toHaveLength(0);
    holder.child.kill("SIGKILL");
    await holder.closed;
    expect((await eventually(async () => (await claim(store))[0])).taskId).toBe(id);
  });

  test.each([
    ["another process has its number by now", { start: "1" }, true],
    ["a process of another machine may well be alive", { host: "elsewhere" }, false],
    ["a number that nobody has is a process that is gone", { pid: 2 ** 22 + 1 }, true],
  ])("%s", async (_, change, taken) => {
    const file = fresh();
    const clock = manualClock();
    await using store = sqlite(file, { clock });
    await begin(store);
    inspect(file, (db) => {
      const { holder } = db.prepare("SELECT holder FROM activation").get() as { holder: string };
      const other = JSON.stringify({ ...(JSON.parse(holder) as object), ...change });
      db.prepare("UPDATE activation SET holder = ?").run(other);
    });
    expect(await claim(store)).toHaveLength(taken ? 1 : 0);
    clock.advance(30_000);
    expect(await claim(store)).toHaveLength(1);
  });
});

describe("the file", () => {
  test("is its owner's alone", async () => {
    const file = fresh();
    await using store = sqlite(file);
    await create(store);
    for (const end of ["", "-wal", "-shm"]) expect(statSync(file + end).mode & 0o777).toBe(0o600);
  });

  test("is safe against a loss of power, and waits for nobody", async () => {
    const file = fresh();
    const openDatabase = (await import("../../src/store/sqlite/open.ts")).openDatabase;
    const db = openDatabase(file);
    expect(db.prepare("PRAGMA journal_mode").get()).toEqual({ journal_mode: "wal" });
    expect(db.prepare("PRAGMA synchronous").get()).toEqual({ synchronous: 2 });
    expect(db.prepare("PRAGMA busy_timeout").get()).toEqual({ timeout: 0 });
    db.close();
  });

  test("keeps everything when it is closed and opened again", async () => {
    const file = fresh();
    let parked;
    {
      await using store = sqlite(file);
      parked = await beginAsking(store, ["zeta", "alpha"], { args: '{"b":"\\u0000","a":1}' });
    }
    await using store = sqlite(file);
    expect(Object.keys((await read(store, parked)).inputRequests)).toEqual(["zeta", "alpha"]);
    await store.answer(parked.taskId, owner, { zeta: { action: "accept" }, alpha: { action: "decline" } }, null);
    expect((await claimOne(store)).args).toBe('{"b":"\\u0000","a":1}');
  });

  test("holds nothing of a task that was purged and forgotten", async () => {
    const file = fresh();
    const clock = manualClock();
    await using store = sqlite(file, { clock });
    const claimed = await begin(store, { keepMs: 0 });
    await store.recordStep(claimed, "a", { state: "done", value: "1" });
    await store.send(claimed.taskId, "e", "1");
    await store.park(claimed, asks("i"), true);
    await store.finish(claimed, { status: "completed", result: "1" });
    expect((await store.sweep()).purged).toHaveLength(1);
    clock.advance(hour);
    await store.sweep();
    await claim(store);
    const counts = inspect(file, (db) =>
      ["task", "call", "activation", "lane", "step", "input", "event", "tombstone"].map(
        (table) => db.prepare(`SELECT count(*) AS rows FROM ${table}`).get()?.rows,
      ),
    );
    expect(counts).toEqual(counts.map(() => 0));
  });

  test("refuses to change a finished task even for whoever writes SQL", async () => {
    const file = fresh();
    await using store = sqlite(file);
    const claimed = await begin(store);
    await store.finish(claimed, { status: "completed", result: "1" });
    inspect(file, (db) => {
      expect(() => db.exec("UPDATE task SET status = 'failed', result = NULL, error = '{}'")).toThrow(/never changes/);
    });
  });

  test("that is full fails the verb, loses nothing, and can still be read", async () => {
    const file = fresh();
    const { lines, code, complaints } = await start("fill", file, { shell: 'trap "" XFSZ; ulimit -f 2000' }).closed;
    expect([code, complaints]).toEqual([0, ""]);
    expect(lines.at(-1)).toBe("STORE_UNAVAILABLE 1");
    await using store = sqlite(file);
    for (const taskId of lines.slice(0, -1)) await read(store, { taskId });
    await create(store);
    assertSound(file);
  });
});

describe("a file that can't be used", () => {
  const refusal = (file: string) => {
    try {
      sqlite(file);
    } catch (thrown) {
      expect(thrown).toBeInstanceOf(TaskError);
      const error = thrown as TaskError;
      expect(error.message).not.toContain(folder);
      return error.code;
    }
    return "opened";
  };
  const made = async (change: (file: string) => void) => {
    const file = fresh();
    const store: TaskStore = sqlite(file);
    for (let n = 0; n < 50; n++) await create(store, { args: JSON.stringify("x".repeat(2_000)) });
    await store[Symbol.asyncDispose]();
    change(file);
    return file;
  };

  test("is refused when its folder isn't there, or it is a folder", () => {
    expect(refusal(join(folder, "nowhere", "a.db"))).toBe("STORE_UNREADABLE");
    expect(refusal(folder)).toBe("STORE_UNREADABLE");
  });

  test("is refused when it is no database, or another program's", () => {
    const text = fresh();
    writeFileSync(text, "This is no database, but it is long enough to be one. ".repeat(100));
    expect(refusal(text)).toBe("STORE_UNREADABLE");
    const foreign = fresh();
    inspect(foreign, (db) => db.exec("CREATE TABLE theirs (a)"));
    expect(refusal(foreign)).toBe("STORE_UNREADABLE");
    expect(inspect(foreign, (db) => db.prepare("SELECT name FROM sqlite_schema").all())).toEqual([{ name: "theirs" }]);
  });

  test("is refused when it is newer, and left as it was", async () => {
    const file = await made((path) => inspect(path, (db) => db.exec("PRAGMA user_version = 9999")));
    expect(refusal(file)).toBe("STORE_NEWER");
    expect(inspect(file, (db) => db.prepare("PRAGMA user_version").get())).toEqual({ user_version: 9999 });
  });

  test("of the first version is brought up to date, while a process of that version goes on", async () => {
    const file = fresh();
    const old = new DatabaseSync(file);
    old.exec(readFileSync(new URL("../../sql/sqlite/0001_tasks.sql", import.meta.url), "utf8"));
    old.exec("PRAGMA user_version = 1");
    const insert = old.prepare(`
      INSERT INTO task (id, owner, tool, version, queue, priority, status, created_at, updated_at, turned_at,
        rev, epoch, attempts, strikes, recovery, unwind, cancel_requested, changed)
      VALUES (:id, 'alice', 'build', '', 'default', 0, 'working', 1, 1, 1, 1, 0, 3, 0, 'retry', 0, 0, 1)`);
    insert.run({ id: "before" });
    await using store = sqlite(file);
    insert.run({ id: "after" });
    for (const id of ["before", "after"]) expect(await store.get(id, owner)).toMatchObject({ id });
    const reuse = { key: "k", call: "c", scope: "kept" } as const;
    const first = await create(store, { reuse });
    expect(await create(store, { reuse })).toEqual(first);
    old.prepare("DELETE FROM task WHERE id = ?").run(first.id);
    old.close();
    expect((await create(store, { reuse })).id).not.toBe(first.id);
  });

  test("of the version before timeouts is brought up to date, and what a process of that version does to waits counts", async () => {
    const file = fresh();
    const old = new DatabaseSync(file);
    for (const name of ["0001_tasks", "0002_secrets", "0003_owner_page", "0004_reuse"])
      old.exec(readFileSync(new URL(`../../sql/sqlite/${name}.sql`, import.meta.url), "utf8"));
    old.exec("PRAGMA user_version = 4");
    const answer = old.prepare(`
      UPDATE input SET response = '{"action":"accept"}', open = 0 WHERE key = 'old' AND open = 1`);
    const finish = old.prepare("UPDATE task SET status = 'completed', result = '1', finished_at = 1 WHERE id = ?");
    const drop = old.prepare("DELETE FROM activation WHERE task = (SELECT seq FROM task WHERE id = ?)");
    const clock = manualClock();
    await using store = sqlite(file, { clock });
    const ask = (key: string) => waits({ inputs: [{ key, request: form, timeoutMs: hour }] });
    const finished = await begin(store);
    await store.park(finished, ask("open"), false);
    finish.run(finished.taskId);
    drop.run(finished.taskId);
    expect(await store.nextDue()).toBe(null);
    const answered = await begin(store);
    await store.park(answered, { ...ask("old"), events: [{ key: "e", timeoutMs: 2 * hour }] }, false);
    answer.run();
    old.close();
    clock.advance(2 * hour);
    const { taskId, journal } = await claimOne(store);
    expect([taskId, journal.inputs.old?.response, journal.events]).toEqual([
      answered.taskId,
      { action: "accept" },
      { e: null },
    ]);
    expect(await store.get(finished.taskId, owner)).toMatchObject({ status: "completed" });
  });

  test("what a process without timeouts asks for again after its time is over at the first answer, or value", async () => {
    const file = fresh();
    const clock = manualClock();
    await using store = sqlite(file, { clock });
    using old = new DatabaseSync(file);
    const events = [{ key: "e", timeoutMs: hour }];
    const waiting = await begin(store);
    await store.park(waiting, waits({ inputs: [{ key: "a", request: form, timeoutMs: hour }], events }), false);
    // It parks a task whose instant a sweep has taken away while nothing was open.
    old.exec("UPDATE task SET wait_until = NULL");
    clock.advance(hour);
    await store.sweep();
    expect(await read(store, waiting)).toMatchObject({ status: "input_required" });
    await store.answer(waiting.taskId, owner, { a: { action: "accept" } }, null);
    const { journal } = await claimOne(store);
    expect([journal.inputs.a?.response, journal.events]).toEqual(["timed out", { e: null }]);
    const other = await begin(store);
    await store.park(other, waits({ events }), false);
    old.exec("UPDATE task SET wait_until = NULL");
    clock.advance(hour);
    await store.send(other.taskId, "e", "1");
    expect((await claimOne(store)).journal.events).toEqual({ e: null });
  });

  test("is refused when it is damaged or cut off", async () => {
    const damaged = await made((path) => {
      const handle = openSync(path, "r+");
      writeSync(handle, Buffer.alloc(statSync(path).size - 4_096, 0xa5), 0, null, 4_096);
      closeSync(handle);
    });
    expect(refusal(damaged)).toBe("STORE_UNREADABLE");
    expect(refusal(await made((path) => truncateSync(path, 10_000)))).toBe("STORE_UNREADABLE");
    const headless = await made((path) => {
      const handle = openSync(path, "r+");
      writeSync(handle, Buffer.alloc(100, 0xa5), 0, null, 0);
      closeSync(handle);
    });
    expect(refusal(headless)).toBe("STORE_UNREADABLE");
  });

  test("is refused when it may only be read", async () => {
    const shared = join(folder, "read-only");
    mkdirSync(shared);
    const file = join(shared, "a.db");
    copyFileSync(await made(() => {}), file);
    for (const path of [folder, shared]) chmodSync(path, 0o755);
    chmodSync(file, 0o444);
    // Root may write anywhere: become nobody.
    const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
    if (process.getuid?.() !== 0) chmodSync(shared, 0o555);
    const { lines, complaints } = await start("refuse", file, nobody).closed;
    chmodSync(shared, 0o755);
    expect([lines, complaints]).toEqual([["STORE_UNREADABLE"], ""]);
  });

  test("an empty file becomes a task database", async () => {
    const file = fresh();
    writeFileSync(file, "");
    await using store = sqlite(file);
    await create(store);
  });
});
