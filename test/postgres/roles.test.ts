import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { parsed, run, temporaryFolder } from "../cli/program.ts";
import { startFixture } from "../fixture/start.ts";
import { wire } from "../wire/client.ts";
import { startCluster } from "./cluster.ts";
import { freshDatabase } from "./database.ts";

test("a worker from the command line runs what front ends that run nothing have taken", async () => {
  const cluster = await startCluster();
  const [here, there] = [(await cluster.front())(), (await cluster.front())()];
  const before = await here.start("free");
  const [one, other] = await Promise.all([cluster.worker(), cluster.worker()]);
  expect(await there.until(before)).toMatchObject({ status: "completed" });

  const asked = await here.start("asks");
  await there.until(asked, "input_required");
  await there.update(asked, { size: { action: "accept", content: { size: 3 } } });
  expect(await here.until(asked)).toMatchObject({ status: "completed" });

  const running = await there.start("gated", { gate: "never" });
  await cluster.untilRuns(3);
  await here.cancel(running);
  expect(await there.until(running)).toMatchObject({ status: "cancelled" });
  const aborted = await cluster.untilRuns((runs) => runs.every(({ ended }) => ended !== null));

  expect(aborted.map(({ tool }) => tool)).toEqual(["free", "asks 3", "gated"]);
  for (const { process } of aborted) expect([one.pid, other.pid]).toContain(process);
  await Promise.all([one.drain(), other.drain()]);
  for (const { done } of [one, other]) {
    const { code, stdout, stderr } = await done;
    expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
    // A slow machine takes long enough over the question for a word about it.
    expect(stderr).toMatch(/^Working on .+\n(.+ UNSTEPPED_WORK: .+\n)?Ending: .+\n$/);
  }
});

test("a worker takes tasks from the queues that it is told, and from no other", async () => {
  const cluster = await startCluster();
  const front = (await cluster.front())();
  const onGpu = await Promise.all(Array.from({ length: 5 }, () => front.start("on-gpu")));
  const [gpu, rest] = await Promise.all([cluster.worker(["--queue", "gpu"]), cluster.worker()]);
  const free = await Promise.all(Array.from({ length: 5 }, () => front.start("free")));
  for (const id of [...onGpu, ...free]) expect(await front.until(id)).toMatchObject({ status: "completed" });
  for (const { tool, process } of await cluster.runs()) expect(process).toBe(tool === "on-gpu" ? gpu.pid : rest.pid);
});

test("one process can be front end and worker, for itself and for other front ends", async () => {
  const database = await freshDatabase();
  const file = path.join(temporaryFolder(), "journal");
  {
    await using both = await startFixture(["--db", database.url]);
    await using front = await startFixture(["--db", database.url, "--role", "front"]);
    const clients = [wire(both.url), wire(front.url)];
    const ids = await Promise.all(clients.map((client) => client.start("journal", { path: file })));
    for (const client of clients)
      for (const id of ids) expect(await client.until(id)).toMatchObject({ status: "completed" });
    const lines = readFileSync(file, "utf8").trimEnd().split("\n");
    expect(lines).toHaveLength(4);
    for (const line of lines) expect(line.split(" ")[2]).toBe(String(both.pid));
  }
  await database.drop();
});

test("what a worker is told wrongly is refused", async () => {
  for (const flags of [
    ["--drain", "soon"],
    ["--owner-concurrency", "0"],
  ]) {
    const ran = await run(["worker", "--tools", "tools.ts", "--db", "tasks.db", ...flags, "--json"]);
    expect(ran.code).toBe(2);
    expect(parsed(ran).error).toMatchObject({ code: "USAGE" });
  }
});
