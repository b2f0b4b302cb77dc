import { DatabaseSync } from "node:sqlite";
import { taskTool } from "../src/tool.ts";
import { timed } from "./benchmark.ts";
import { embedded } from "./embedded.ts";

/** What finished tasks do to those that are not: times of single verbs, in milliseconds. */
export interface Beside {
  readonly getMs: readonly number[];
  /** From `create` to the end of an empty task. */
  readonly runMs: readonly number[];
}

const reads = 5_000;
const runs = 300;

/** On a file that holds so many finished tasks. They are copies of one that ran, but for their ids. */
export async function besideFinished(count: number): Promise<Beside> {
  const empty = taskTool({ name: "empty", run: () => ({ content: [{ type: "text", text: "done" }] }) });
  await using bench = await embedded([empty]);
  const run = async () => {
    const id = await bench.start(empty);
    await bench.engine.settled(id, "", AbortSignal.timeout(60_000));
    return id;
  };
  const first = await run();
  const copies = copy(bench.file, first, count - 1);
  const getMs: number[] = [];
  for (let n = 0; n < reads; n++) {
    const id = copies(Math.floor(Math.random() * (count - 1)));
    const began = performance.now();
    await bench.engine.read(id, "");
    getMs.push(performance.now() - began);
  }
  const runMs: number[] = [];
  for (let n = 0; n < runs; n++) runMs.push(await timed(run));
  return { getMs, runMs };
}

/** Copies a task and its call, and tells the ids. */
function copy(file: string, id: string, count: number): (n: number) => string {
  using db = new DatabaseSync(file, { timeout: 60_000 });
  const columns = (table: string, but: string) =>
    db
      .prepare("SELECT name FROM pragma_table_info(?) WHERE name <> ?")
      .all(table, but)
      .map(({ name }) => String(name));
  const idOf = (n: number) => id.slice(0, -8) + n.toString(16).padStart(8, "0");
  const copied = columns("task", "seq").map((name) =>
    name === "id" ? `substr(id, 1, length(id) - 8) || printf('%08x', n)` : name,
  );
  const numbers = "WITH RECURSIVE counter (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counter WHERE n + 1 < ?)";
  const seq = Number(db.prepare("SELECT seq FROM task WHERE id = ?").get(id)?.seq);
  db.exec("BEGIN IMMEDIATE");
  db.prepare(
    `${numbers} INSERT INTO task (seq, ${columns("task", "seq").join(", ")})
     SELECT seq + 1 + n, ${copied.join(", ")} FROM task, counter WHERE seq = ?`,
  ).run(count, seq);
  db.prepare(
    `${numbers} INSERT INTO call (task, ${columns("call", "task").join(", ")})
     SELECT task + 1 + n, ${columns("call", "task").join(", ")} FROM call, counter WHERE task = ?`,
  ).run(count, seq);
  db.exec("COMMIT");
  return idOf;
}
