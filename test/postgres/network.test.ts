import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";
import { stdioWire } from "../wire/stdio.ts";
import { openNetwork, whyNoNetwork, type Host } from "./hosts.ts";
import { killProcesses, startProgram } from "./processes.ts";
import { startServer } from "./server.ts";

const machine = fileURLToPath(new URL("machine.ts", import.meta.url));

afterEach(killProcesses);

/** A worker on a host, and what it says: see machine.ts. */
function startWorker(name: string, url: string, { enter }: Host) {
  const { child, lines, until } = startProgram(machine, ["worker", url, name], enter);
  const said = (...words: readonly unknown[]) =>
    lines
      .map((line) => JSON.parse(line) as unknown[])
      .filter((line) => words.every((word, at) => word === undefined || line[at] === word));
  /** What came of its writes of the step: true for those that were taken. */
  const outcomes = (taskId: string) =>
    said("begin", undefined, taskId, undefined, "recordStep").flatMap(([, write]) =>
      said("end", write).map((line) => line[2]),
    );
  return {
    said,
    outcomes,
    until,
    says: (...words: readonly unknown[]) => until(() => said(...words).length > 0),
    /** Lets the step of a task end. */
    letGo: (taskId: string) => void child.stdin.write(`${taskId}\n`),
  };
}

const resultOf = (text: string) => ({ status: "completed", result: { content: [{ type: "text", text }] } });

test("a worker that is cut off the network is replaced, and what it writes once it is back is refused", async ({
  skip,
}) => {
  const why = whyNoNetwork();
  if (why !== null) skip(why);
  await using network = await openNetwork(["database", "front", "lost", "other"]);
  const { hosts } = network;
  await using server = await startServer({}, hosts.database);
  const args = ["--conditions=mcp-tasks-dev", machine, "front", server.url];
  await using front = stdioWire(args, { enter: hosts.front.enter });
  const lost = startWorker("lost", server.url, hosts.lost);
  const [early, late] = [await front.start("held"), await front.start("held")];
  for (const taskId of [early, late]) await lost.says("working", taskId);
  const other = startWorker("other", server.url, hosts.other);
  await other.says("ready");

  hosts.lost.unplug();
  for (const taskId of [early, late]) await other.says("working", taskId);
  // Its work ends while it can reach nobody: what it writes is on its way.
  for (const taskId of [early, late]) lost.letGo(taskId);
  for (const taskId of [early, late]) await lost.says("begin", undefined, taskId, 1, "recordStep");
  other.letGo(early);
  const end = await front.until(early);
  expect(end).toMatchObject(resultOf("other"));
  expect([lost.said("end"), lost.said("aborted")]).toEqual([[], []]);

  // One of its tasks is over by now, and the other one is still being worked at.
  hosts.lost.plug();
  for (const taskId of [early, late]) {
    await lost.until(() => lost.outcomes(taskId).length > 0);
    await lost.says("aborted", taskId, "LEASE_LOST");
    expect(lost.outcomes(taskId)).toEqual([false]);
  }
  other.letGo(late);
  expect(await front.until(late)).toMatchObject(resultOf("other"));
  expect((await front.get(early)).body.result).toEqual(end);
  expect([early, late].map((taskId) => other.outcomes(taskId))).toEqual([[true], [true]]);
}, 60_000);
