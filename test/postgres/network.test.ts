import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";
import { stdioWire } from "../wire/stdio.ts";
import { openNetwork, whyNoNetwork } from "./hosts.ts";
import { killProcesses, startProgram } from "./processes.ts";
import { startServer } from "./server.ts";

const machine = fileURLToPath(new URL("machine.ts", import.meta.url));
const names = ["one", "two"] as const;

afterEach(killProcesses);

/** A worker on its host, and what it says: see machine.ts. */
function startWorker(name: string, url: string, enter: readonly string[]) {
  const { child, lines, until } = startProgram(machine, ["worker", url, name], enter);
  const said = () => lines.map((line) => JSON.parse(line) as unknown[]);
  return {
    name,
    said,
    /** Waits until it has said this, and gives the whole line. */
    async says(...words: readonly unknown[]): Promise<unknown[]> {
      const fits = (line: unknown[]) => words.every((word, at) => word === undefined || line[at] === word);
      await until(() => said().some(fits));
      return said().find(fits)!;
    },
    /** Lets its step end. */
    letGo: () => void child.stdin.write("\n"),
  };
}

test("a worker that is cut off the network is replaced, and what it writes once it is back is refused", async ({
  skip,
}) => {
  const why = whyNoNetwork();
  if (why !== null) skip(why);
  await using network = await openNetwork(["database", "front", ...names]);
  const { hosts } = network;
  await using server = await startServer({}, hosts.database);
  await using front = stdioWire(["--conditions=mcp-tasks-dev", machine, "front", server.url], {
    enter: hosts.front.enter,
  });
  const [one, two] = names.map((name) => startWorker(name, server.url, hosts[name].enter)) as [Worker, Worker];
  await Promise.all([one.says("ready"), two.says("ready")]);

  const taskId = await front.start("held");
  const lost = await Promise.race([one, two].map((worker) => worker.says("working").then(() => worker)));
  const other = lost === one ? two : one;
  hosts[lost.name as (typeof names)[number]].unplug();

  // Its work ends while it can reach nobody: the write is on its way when the other one has the task.
  await other.says("working");
  lost.letGo();
  const [, write] = await lost.says("begin", undefined, taskId, 1, "recordStep");
  other.letGo();
  const done = await front.until(taskId);
  expect(done).toMatchObject({ status: "completed", result: { content: [{ type: "text", text: other.name }] } });
  expect(lost.said().filter(([word]) => word === "end" || word === "aborted")).toEqual([]);

  hosts[lost.name as (typeof names)[number]].plug();
  expect(await lost.says("end", write)).toEqual(["end", write, false]);
  expect(await lost.says("aborted")).toEqual(["aborted", "LEASE_LOST"]);
  expect((await front.get(taskId)).body.result).toEqual(done);
  expect([one, two].flatMap(({ said }) => said()).filter(([word]) => word === "claim")).toHaveLength(2);
}, 60_000);

type Worker = ReturnType<typeof startWorker>;
