import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setImmediate as turn } from "node:timers/promises";
import { afterAll, describe, expect, test } from "vitest";
import { create, newTask, owner } from "../../src/store/contract/kit.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { expectExactLimit } from "./limit.ts";

const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-live-"));
afterAll(() => rmSync(folder, { recursive: true }));
let files = 0;
const fresh = () => join(folder, `${files++}.db`);
const tooMany = { code: "TOO_MANY_TASKS" };

describe("the limit of unfinished tasks on SQLite", () => {
  test("is exact, whichever process creates and ends", async () => {
    const file = fresh();
    await using one = sqlite(file);
    await using two = sqlite(file);
    await expectExactLimit([one, two], 20, 300);
  });

  test("holds for whoever was counted up to a lower one", async () => {
    await using store = sqlite(":memory:");
    for (let n = 0; n < 9; n++) await create(store);
    await expect(store.create(newTask(), 3)).rejects.toMatchObject(tooMany);
    await store.create(newTask(), 10);
    await expect(store.create(newTask(), 10)).rejects.toMatchObject(tooMany);
  });

  test("holds after a transaction that came to nothing", async () => {
    const file = fresh();
    await using store = sqlite(file);
    using other = new DatabaseSync(file);
    other.exec(`CREATE TRIGGER cut BEFORE INSERT ON task WHEN NEW.tool = 'cut'
      BEGIN SELECT RAISE(ROLLBACK, 'the whole transaction ends'); END`);
    const [first, second] = await Promise.all([create(store), create(store), create(store)]);
    const results = await Promise.allSettled([
      store.requestCancel(first.id, owner, 0),
      store.requestCancel(second.id, owner, 0),
      store.create(newTask(), 3),
      create(store, { tool: "cut" }),
    ]);
    expect(results.map(({ status }) => status)).toEqual(Array.from({ length: 4 }, () => "rejected"));
    await expect(store.create(newTask(), 3)).rejects.toMatchObject(tooMany);
  });
});

test("what follows a verb within a turn of the event loop shares its transaction", async () => {
  const file = fresh();
  await using store = sqlite(file);
  using other = new DatabaseSync(file);
  const first = create(store);
  await turn();
  const second = create(store);
  await first;
  expect(other.prepare("SELECT count(*) AS tasks FROM task").get()).toEqual({ tasks: 2 });
  await second;
});
