import { expect, test } from "vitest";
import { fakeServer } from "../client/fake-http.ts";
import { created, working } from "../client/wire.ts";
import { tasksExtension } from "../../src/protocol/capabilities.ts";
import { idempotencyExtension } from "../../src/protocol/idempotency.ts";
import { type Running, parsed, run, start } from "./program.ts";

const remembered = async () => parsed(await run(["ls", "--json"])).document.tasks;
const tools = async () => (await remembered()).map(({ tool }: any) => tool);

/** A server that gives a task for each call, of the tool's own name, but for those of `silent`, which it leaves open. */
async function server(silent: readonly string[] = []) {
  const called: (() => void)[] = [];
  const fake = await fakeServer(
    ({ method, params }, reply) => {
      if (method === "tasks/get") reply.result(working({ taskId: params.taskId }));
      else if (silent.includes(params.name)) called.forEach((tell) => tell());
      else reply.result(created({ taskId: `${params.name}-task` }));
    },
    { [tasksExtension]: {}, [idempotencyExtension]: { tools: ["keyed"] } },
  );
  const call = (tool: string) => run(["call", tool, "--detach", "--url", fake.url]);
  /** A call that the server has, and has not answered. */
  const begun = async (tool: string): Promise<Running> => {
    const arrived = new Promise<void>((resolve) => called.push(resolve));
    const running = start(["call", tool, "--url", fake.url]);
    await arrived;
    return running;
  };
  const killed = async (tool: string) => {
    const running = await begun(tool);
    running.child.kill("SIGKILL");
    await running.done;
  };
  return Object.assign(fake, { call, begun, killed });
}

test("--lost forgets calls that died before any answer, and nothing that could still be had", async () => {
  await using fake = await server(["lost", "keyed", "held"]);
  await fake.call("task");
  await fake.killed("lost");
  await fake.killed("keyed");
  const held = await fake.begun("held");
  const rows = await remembered();
  expect(rows.map(({ tool, status }: any) => [tool, status])).toEqual([
    ["task", "working"],
    ["lost", "unknown"],
    ["keyed", "unknown"],
    ["held", "calling"],
  ]);
  const { code, stdout, stderr } = await run(["forget", "--lost"]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: `${rows[1].call}  unknown  lost  ${fake.url}\n` });
  expect(stderr).toBe(`Left, since it can be had by calling it again with --repeat:\n  ${rows[2].call}  keyed\n`);
  expect(await tools()).toEqual(["task", "keyed", "held"]);
  const again = await run(["forget", "--lost", "--json"]);
  expect(again.code).toBe(0);
  expect(parsed(again).document).toEqual({ forgotten: [], left: [rows[2]] });
  held.child.kill("SIGKILL");
  await held.done;
  expect(parsed(await run(["forget", "--lost", "--json"])).document.forgotten).toMatchObject([
    { call: rows[3].call, taskId: null, tool: "held" },
  ]);
  expect(fake.of("tasks/get")).toEqual([]);
});

test("an id forgets a task of a server that is gone, and says what it was", async () => {
  const fake = await server();
  await fake.call("gone");
  await fake.call("other");
  await fake[Symbol.asyncDispose]();
  const { code, stdout, stderr } = await run(["forget", "gone-t"]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: `gone-task  working  gone  ${fake.url}\n` });
  expect(stderr).toBe("No server was told. While it has the task, the whole id still finds it.\n");
  expect(await tools()).toEqual(["other"]);
  const [row] = await remembered();
  expect(parsed(await run(["forget", "other-task", "--json"])).document).toEqual({ forgotten: [row], left: [] });
  expect(await run(["forget", "--lost"])).toEqual({ code: 0, stdout: "", stderr: "Nothing to forget.\n" });
});

test("a call without a task has an id of its own in ls, by which it is forgotten whether or not it has a key", async () => {
  await using fake = await server(["keyed"]);
  await fake.killed("keyed");
  const [, line = ""] = (await run(["ls"])).stdout.split("\n");
  const [id = ""] = line.split(" ");
  expect(id).toMatch(/^[0-9a-f]{8}$/);
  expect((await run(["forget", id])).stdout).toContain("unknown  keyed");
  expect(await remembered()).toEqual([]);
});

test("what another process waits for is left to it, unless by --force", async () => {
  await using fake = await server(["held"]);
  const held = await fake.begun("held");
  const [{ call }] = await remembered();
  const refused = await run(["forget", call, "--json"]);
  expect(refused.code).toBe(2);
  expect(parsed(refused).error).toMatchObject({ code: "HELD", next: `mcp-tasks forget ${call} --force` });
  expect(await tools()).toEqual(["held"]);
  expect(await run(["forget", call, "--force"])).toMatchObject({ code: 0 });
  expect(await remembered()).toEqual([]);
  held.child.kill("SIGKILL");
  await held.done;
});

test("with an id that nobody knows nothing at all is forgotten, and the exit code is 10", async () => {
  await using fake = await server();
  await fake.call("one");
  await fake.call("once");
  const ran = await run(["forget", "one-task", "nobody", "--json"]);
  expect(ran.code).toBe(10);
  expect(parsed(ran)).toMatchObject({
    document: { status: "unknown" },
    error: { code: "NOT_REMEMBERED", message: expect.stringContaining("nobody"), next: "mcp-tasks ls" },
  });
  expect(await tools()).toEqual(["one", "once"]);
});

test("one id on two servers needs the server's name, and ids of other servers are not meant", async () => {
  await using one = await server();
  await using two = await server();
  await one.call("same");
  await two.call("same");
  expect(await run(["forget", "same-task"])).toMatchObject({ code: 2, stderr: expect.stringContaining("--url") });
  expect(await run(["forget", "same-task", "--url", two.url])).toMatchObject({ code: 0 });
  expect((await remembered()).map(({ server }: any) => server)).toEqual([one.url]);
  expect(await run(["forget", "same-task", "--url", two.url])).toMatchObject({ code: 10 });
});

test.each([
  ["neither an id nor --lost", []],
  ["both", ["abcd", "--lost"]],
  ["--force without an id", ["--lost", "--force"]],
])("%s is a wrong line", async (_, words) => {
  expect(await run(["forget", ...words])).toMatchObject({ code: 2, stdout: "" });
});
