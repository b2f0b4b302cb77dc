import { expect, test } from "vitest";
import { mostAtOnce, startCluster, type Cluster, type WitnessedRun } from "./cluster.ts";

const three = (cluster: Cluster, flags: readonly string[]) => Promise.all([1, 2, 3].map(() => cluster.worker(flags)));
const times = <T>(n: number, work: () => Promise<T>) => Promise.all(Array.from({ length: n }, work));
const processes = (runs: readonly WitnessedRun[]) => new Set(runs.map(({ process }) => process)).size;

test("no more tasks of a tool run at once than it allows, over three workers that race", async () => {
  const cluster = await startCluster();
  const front = (await cluster.front())();
  await three(cluster, ["--concurrency", "4"]);
  // The others keep every worker asking for more.
  const tasks = await Promise.all([times(40, () => front.start("limited")), times(120, () => front.start("free"))]);
  for (const id of tasks.flat()) expect(await front.until(id)).toMatchObject({ status: "completed" });
  const runs = await cluster.runs();
  expect(runs).toHaveLength(160);
  expect(processes(runs)).toBe(3);
  const limited = runs.filter(({ tool }) => tool === "limited");
  expect(processes(limited)).toBeGreaterThan(1);
  expect(mostAtOnce(limited)).toBe(2);
  expect(mostAtOnce(runs)).toBeGreaterThan(4);
});

test("no more tasks of an owner run at once than allowed, over three workers that race, and owners take turns", async () => {
  const cluster = await startCluster();
  const front = await cluster.front();
  await three(cluster, ["--concurrency", "4", "--owner-concurrency", "3"]);
  const alice = times(60, () => front("alice").start("free"));
  const others = ["bob", "carol"].map((name) => times(20, () => front(name).start("free")));
  const tasks = (await Promise.all([alice, ...others])).map((ids, n) =>
    ids.map((id) => ({ id, owner: ["alice", "bob", "carol"][n]! })),
  );
  for (const { id, owner } of tasks.flat()) expect(await front(owner).until(id)).toMatchObject({ status: "completed" });
  const runs = await cluster.runs();
  expect(runs).toHaveLength(100);
  expect(processes(runs)).toBe(3);
  const of = (name: string) => runs.filter(({ owner }) => owner === name);
  for (const name of ["alice", "bob", "carol"]) expect(mostAtOnce(of(name))).toBe(3);
  expect(mostAtOnce(runs)).toBeGreaterThan(3);
  expect(of("bob").at(-1)!.started).toBeLessThan(of("alice").at(-1)!.started);
});

test("over all workers the tasks of a higher priority begin first", async () => {
  const cluster = await startCluster();
  const front = (await cluster.front())();
  // Each worker has its hands full, so that nobody takes anything before all of it is there.
  const workers = await three(cluster, ["--concurrency", "1"]);
  await times(3, () => front.start("gated", { gate: "start" }));
  await cluster.untilRuns(3);
  await times(15, () => front.start("free"));
  await times(15, () => front.start("urgent"));
  await cluster.open("start");
  const runs = (await cluster.untilRuns(33)).slice(3);
  expect(processes(runs)).toBe(3);
  const first = runs.findIndex(({ tool }) => tool === "free");
  const late = runs.slice(first).filter(({ tool }) => tool === "urgent");
  // Those that the other workers had claimed, and had not said so yet.
  expect(late.length).toBeLessThan(workers.length);
});
