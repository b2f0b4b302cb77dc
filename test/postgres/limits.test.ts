import { expect, test } from "vitest";
import type { Wire } from "../wire/client.ts";
import { mostAtOnce, startCluster, type Cluster, type WitnessedRun } from "./cluster.ts";

const three = (cluster: Cluster, flags: readonly string[]) => Promise.all([1, 2, 3].map(() => cluster.worker(flags)));
const times = <T>(n: number, work: () => Promise<T>) => Promise.all(Array.from({ length: n }, work));
const processes = (runs: readonly WitnessedRun[]) => new Set(runs.map(({ process }) => process)).size;

/** Three workers for four tasks each, whose hands are full: nobody takes anything more before the gate opens. */
async function threeBusy(cluster: Cluster, front: (token?: string) => Wire, flags: readonly string[] = []) {
  const workers = await three(cluster, ["--concurrency", "4", ...flags]);
  for (const owner of ["one", "two", "three", "four"])
    await times(3, () => front(owner).start("gated", { gate: "start" }));
  await cluster.untilRuns(12);
  return workers;
}

test("no more tasks of a tool run at once than it allows, over three workers that race", async () => {
  const cluster = await startCluster();
  const front = await cluster.front();
  await threeBusy(cluster, front);
  // The others keep every worker asking for more.
  const tasks = await Promise.all([times(24, () => front().start("limited")), times(60, () => front().start("free"))]);
  await cluster.open("start");
  for (const id of tasks.flat()) expect(await front().until(id)).toMatchObject({ status: "completed" });
  const runs = (await cluster.runs()).slice(12);
  expect(runs).toHaveLength(84);
  expect(processes(runs)).toBe(3);
  const limited = runs.filter(({ tool }) => tool === "limited");
  expect(processes(limited)).toBeGreaterThan(1);
  expect(mostAtOnce(limited)).toBe(2);
  expect(mostAtOnce(runs)).toBeGreaterThan(2);
});

test("no more tasks of an owner run at once than allowed, over three workers that race, and owners take turns", async () => {
  const cluster = await startCluster();
  const front = await cluster.front();
  await threeBusy(cluster, front, ["--owner-concurrency", "3"]);
  const shares = { alice: 40, bob: 12, carol: 12 };
  const tasks: { owner: string; id: string }[] = [];
  for (const [owner, share] of Object.entries(shares))
    tasks.push(...(await times(share, async () => ({ owner, id: await front(owner).start("free") }))));
  await cluster.open("start");
  for (const { id, owner } of tasks) expect(await front(owner).until(id)).toMatchObject({ status: "completed" });
  const runs = (await cluster.runs()).slice(12);
  expect(runs).toHaveLength(64);
  expect(processes(runs)).toBe(3);
  const of = (name: string) => runs.filter(({ owner }) => owner === name);
  for (const name of Object.keys(shares)) expect(mostAtOnce(of(name))).toBe(3);
  expect(mostAtOnce(runs)).toBeGreaterThan(3);
  // Alice was first with everything.
  for (const name of ["bob", "carol"]) expect(of(name).at(-1)!.started).toBeLessThan(of("alice").at(-1)!.started);
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
