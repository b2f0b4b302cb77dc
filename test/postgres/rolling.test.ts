import { expect, test } from "vitest";
import { startCluster, type Cluster } from "./cluster.ts";
import { query } from "./database.ts";

interface Queued {
  readonly state: string;
  readonly epoch: number;
  readonly strikes: number;
}

/** Where the queue has a task, and what it has been through. */
async function queued({ url }: Cluster, id: string): Promise<Queued | undefined> {
  const text = `SELECT state, task.epoch::int, strikes FROM mcp_tasks.task
    JOIN mcp_tasks.activation ON activation.task = seq WHERE id = $1`;
  return (await query<Queued>(text, [id], url))[0];
}

test("after SIGTERM a worker takes nothing more, and what runs may finish", async () => {
  const cluster = await startCluster();
  const front = (await cluster.front())();
  const worker = await cluster.worker(["--drain", "1m"]);
  const running = [await front.start("gated", { gate: "first" }), await front.start("gated", { gate: "second" })];
  await cluster.untilRuns(2);
  await worker.drain();
  const late = await front.start("free");
  await cluster.open("first");
  expect(await front.until(running[0]!)).toMatchObject({ status: "completed" });
  await cluster.open("second");
  expect(await front.until(running[1]!)).toMatchObject({ status: "completed" });
  expect(await worker.done).toMatchObject({ code: 0 });
  expect(await cluster.runs()).toHaveLength(2);
  expect(await queued(cluster, late)).toEqual({ state: "ready", epoch: 0, strikes: 0 });
  await cluster.worker();
  expect(await front.until(late)).toMatchObject({ status: "completed" });
});

test("what outlasts the grace is handed back, and no deploy spends an attempt, however many there are", async () => {
  const cluster = await startCluster();
  const front = (await cluster.front())();
  // Both may be attempted once.
  const ids = [await front.start("gated", { gate: "end" }), await front.start("heedless", { gate: "end" })];
  for (let deploy = 1; deploy <= 3; deploy++) {
    const worker = await cluster.worker(["--drain", "1ms"]);
    await cluster.untilRuns(2 * deploy);
    await worker.drain();
    expect(await worker.done).toMatchObject({ code: 0 });
    for (const id of ids) expect(await queued(cluster, id)).toEqual({ state: "ready", epoch: deploy, strikes: 0 });
  }
  await cluster.open("end");
  await cluster.worker();
  for (const id of ids) expect(await front.until(id)).toMatchObject({ status: "completed" });
  const runs = await cluster.runs();
  expect(runs.map(({ attempt }) => attempt)).toEqual(Array.from({ length: 8 }, () => 1));
  expect(new Set(runs.map(({ process }) => process)).size).toBe(4);
});

test("two versions of a tool run side by side, each in the workers that know it", async () => {
  const cluster = await startCluster();
  const [old, young] = [(await cluster.front("1"))(), (await cluster.front("2"))()];
  const [before, after] = await Promise.all([cluster.worker([], "1"), cluster.worker([], "2")]);
  await cluster.open("open");
  const ids: string[] = [];
  for (let n = 0; n < 15; n++)
    ids.push(...(await Promise.all([old, young].map((front) => front.start("gated", { gate: "open" })))));
  // A front end reads tasks of versions that it doesn't know.
  for (const id of ids)
    for (const front of [old, young]) expect(await front.until(id)).toMatchObject({ status: "completed" });
  const runs = await cluster.runs();
  expect(runs).toHaveLength(30);
  expect(runs.filter(({ version }) => version === "1")).toHaveLength(15);
  for (const { version, process } of runs) expect(process).toBe(version === "1" ? before.pid : after.pid);
});

test("tasks of a version that no worker knows wait for one that does", async () => {
  const cluster = await startCluster();
  const [old, young] = [(await cluster.front("1"))(), (await cluster.front("2"))()];
  await cluster.open("open");
  const before = await cluster.worker([], "1");
  const early = await young.start("gated", { gate: "open" });
  // Tasks that came later and that it knows: it has looked, and more than once.
  for (let n = 0; n < 3; n++) await old.until(await old.start("gated", { gate: "open" }));
  expect(await queued(cluster, early)).toEqual({ state: "ready", epoch: 0, strikes: 0 });

  // The new version comes, the old one goes: what it has left waits in its turn.
  await cluster.worker([], "2");
  expect(await young.until(early)).toMatchObject({ status: "completed" });
  await before.drain();
  await before.done;
  const late = await old.start("gated", { gate: "open" });
  for (let n = 0; n < 3; n++) await young.until(await young.start("gated", { gate: "open" }));
  expect(await queued(cluster, late)).toEqual({ state: "ready", epoch: 0, strikes: 0 });
  const again = await cluster.worker([], "1");
  expect(await old.until(late)).toMatchObject({ status: "completed" });
  expect((await cluster.runs()).find(({ task }) => task === late)).toMatchObject({ version: "1", process: again.pid });
});
