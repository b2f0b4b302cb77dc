import path from "node:path";
import { expect, test } from "vitest";
import { entry } from "../client/entry.ts";
import { type Reply, fakeServer } from "../client/fake-http.ts";
import { losesFirstAnswer } from "../client/lossy-proxy.ts";
import { completed, created, text } from "../client/wire.ts";
import { fileLog, idempotencyKey } from "../../src/client/index.ts";
import { digestOf } from "../../src/protocol/digest.ts";
import { tasksExtension } from "../../src/protocol/capabilities.ts";
import { idempotencyExtension } from "../../src/protocol/idempotency.ts";
import { startFixture } from "../fixture/start.ts";
import { parsed, run, start, temporaryFolder } from "./program.ts";

const remembered = async () => parsed(await run(["ls", "--json"])).document.tasks;

/** A server that says nothing to calls until it is told how to answer them. */
async function server(tools: readonly string[] = ["x"]) {
  const state: { answer: ((reply: Reply) => void) | undefined; heeding: readonly string[] } = {
    answer: undefined,
    heeding: tools,
  };
  const extensions = {
    [tasksExtension]: {},
    [idempotencyExtension]: {
      get tools() {
        return state.heeding;
      },
    },
  };
  const fake = await fakeServer(({ method, params }, reply) => {
    if (method === "tasks/get") reply.result(completed("done", { taskId: params.taskId }));
    else state.answer?.(reply);
  }, extensions);
  const keys = () => fake.of("tools/call").map(({ params }) => params._meta[idempotencyKey]);
  const at = (...words: string[]) => [...words, "--json", "--url", fake.url];
  return Object.assign(fake, { state, keys, at });
}

const call = ["call", "x", "--args-json", '{"ref":"v2"}'];

test.each([[[]], [["--detach"]]])(
  "a call whose wait is over before any answer stays in ls, and is repeated with its key %j",
  async (words) => {
    await using fake = await server();
    const waited = await run(fake.at(...call, ...words, "--wait", "300ms"));
    expect(waited.code).toBe(7);
    const [row] = await remembered();
    expect(row).toMatchObject({ taskId: null, tool: "x", status: "unknown", idempotencyKey: fake.keys()[0] });
    const next = `mcp-tasks call x … --repeat ${row.call} --url ${fake.url}`;
    expect(parsed(waited)).toMatchObject({
      document: { status: "unknown", error: { code: "MAY_HAVE_STARTED" } },
      error: { code: "MAY_HAVE_STARTED", exit: 7, message: expect.stringContaining("It stays in ls."), next },
    });
    fake.state.answer = (reply) => reply.result(created());
    const repeated = await run(fake.at(...call, "--repeat", row.call.slice(0, 8)));
    expect(parsed(repeated)).toMatchObject({
      document: { taskId: "task-1", status: "completed", result: text("done") },
    });
    expect(fake.keys()[0]).toMatch(/\S{22}/);
    expect(fake.keys()[1]).toBe(fake.keys()[0]);
    expect(await remembered()).toEqual([]);
  },
);

test("on our own server the repeated call is the task that the first one began", async () => {
  const db = path.join(temporaryFolder(), "tasks.db");
  await using fixture = await startFixture(["--db", db, "--poll", "250"]);
  await using proxy = await losesFirstAnswer(fixture.url);
  const begin = ["call", "slow_compute", "--arg", "seconds=0.5", "label=pi", "--json", "--url", proxy.url];
  expect(await run([...begin, "--wait", "2s"])).toMatchObject({ code: 7 });
  expect(proxy.lost()).toBe(1);
  const [{ call: id }] = await remembered();
  const { document } = parsed(await run([...begin, "--repeat", id]));
  expect(document).toMatchObject({ status: "completed", result: text("Computed pi in 0.5 s") });
  const { tasks } = parsed(await run(["ls", "--db", db, "--json"])).document;
  expect(tasks.map(({ tool }: any) => tool)).toEqual(["slow_compute"]);
  expect(await remembered()).toEqual([]);
});

test("a repeated call whose answer is lost as well stays as it was, under its own id", async () => {
  await using fake = await server();
  await run(fake.at(...call, "--wait", "300ms"));
  const rows = await remembered();
  const { call: id } = rows[0];
  const again = await run(fake.at(...call, "--repeat", id, "--wait", "300ms"));
  expect(again.code).toBe(7);
  expect(parsed(again).error.next).toContain(`--repeat ${id} `);
  expect(await remembered()).toEqual(rows);
  // One that dies while it repeats leaves another entry, which goes with it.
  const dies = start(fake.at(...call, "--repeat", id));
  await expect.poll(() => fake.keys()).toHaveLength(3);
  dies.child.kill("SIGKILL");
  await dies.done;
  expect(await run(fake.at(...call, "--repeat", id, "--wait", "300ms"))).toMatchObject({ code: 7 });
  expect(await remembered()).toEqual(rows);
  expect(new Set(fake.keys())).toEqual(new Set([rows[0].idempotencyKey]));
  // What says nothing of the first call leaves it as it was.
  fake.state.answer = (reply) => reply.error(-32603, "busy");
  expect(await run(fake.at(...call, "--repeat", rows[0].call))).toMatchObject({ code: 8 });
  expect(await remembered()).toEqual(rows);
});

test("without a key nothing is sent again: MAY_HAVE_STARTED is all that is known", async () => {
  await using fake = await server([]);
  const waited = parsed(await run(fake.at(...call, "--wait", "300ms")));
  expect(waited.error).toMatchObject({ code: "MAY_HAVE_STARTED", exit: 7, next: `mcp-tasks ls --url ${fake.url}` });
  const [{ call: id, ...row }] = await remembered();
  expect(row).toMatchObject({ status: "unknown", tool: "x" });
  for (const words of [
    [...call, "--repeat", id],
    ["result", id],
    ["get", id],
    ["watch", id],
    ["cancel", id],
  ]) {
    const ran = await run(fake.at(...words));
    expect(ran.code).toBe(4);
    const next = `mcp-tasks forget ${id} --url ${fake.url}`;
    expect(parsed(ran).error).toMatchObject({ code: "MAY_HAVE_STARTED", exit: 4, next });
  }
  expect(fake.seen.filter(({ method }) => method.startsWith("t"))).toHaveLength(1);
});

test("another server that answers at this address by now is sent nothing", async () => {
  await using fake = await server();
  const state = temporaryFolder();
  const call = {
    tool: "x",
    digest: digestOf({}),
    idempotencyKey: "k".repeat(22),
    taskId: null,
    state: "calling",
  } as const;
  await fileLog(path.join(state, "tasks")).put(entry({ ...call, server: { address: fake.url, name: "before" } }));
  const ran = await run(fake.at("call", "x", "--repeat", "call-1", "--state", state));
  expect(ran.code).toBe(10);
  expect(parsed(ran).error).toMatchObject({ code: "OTHER_SERVER" });
  expect(fake.of("tools/call")).toEqual([]);
});

test("a server that heeds keys no more is sent nothing", async () => {
  await using fake = await server();
  await run(fake.at(...call, "--wait", "300ms"));
  const [{ call: id }] = await remembered();
  fake.state.heeding = [];
  const ran = await run(fake.at(...call, "--repeat", id));
  expect(ran.code).toBe(4);
  expect(parsed(ran).error).toMatchObject({ code: "MAY_HAVE_STARTED" });
  expect(fake.of("tools/call")).toHaveLength(1);
  expect(await remembered()).toHaveLength(1);
});

test("only the same call is repeated: not another tool, other arguments, what is waited for, or nothing at all", async () => {
  await using fake = await server(["x", "y"]);
  await run(fake.at(...call, "--wait", "300ms"));
  const [{ call: id }] = await remembered();
  const code = async (...words: string[]) => {
    const ran = await run(fake.at(...words));
    return [ran.code, parsed(ran).error.code];
  };
  expect(await code("call", "y", "--args-json", '{"ref":"v2"}', "--repeat", id)).toEqual([2, "USAGE"]);
  expect(await code("call", "x", "--args-json", '{"ref":"v3"}', "--repeat", id)).toEqual([2, "USAGE"]);
  expect(await code(...call, "--repeat", "nothing")).toEqual([10, "NOT_REMEMBERED"]);
  const waits = start(fake.at("call", "y"));
  await expect.poll(() => fake.of("tools/call")).toHaveLength(2);
  const held = (await remembered()).find(({ status }: any) => status === "calling");
  expect(await code("call", "y", "--repeat", held.call)).toEqual([10, "NO_TASK"]);
  expect(await code("result", held.call)).toEqual([10, "NO_TASK"]);
  waits.child.kill("SIGKILL");
  await waits.done;
  // One that became a task is looked at by its id.
  fake.state.answer = (reply) => reply.result(created());
  await run(fake.at(...call, "--detach"));
  expect(await code(...call, "--repeat", "task-1")).toEqual([2, "USAGE"]);
  expect(fake.of("tools/call")).toHaveLength(3);
});
