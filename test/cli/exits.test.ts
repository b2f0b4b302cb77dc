import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fakeServer, type Script } from "../client/fake-http.ts";
import { ack, asking, cancelled, completed, created, failed, form, text, working } from "../client/wire.ts";
import { startFixture, type Fixture } from "../fixture/start.ts";
import { parsed, run, start } from "./program.ts";

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture(["--poll", "250"]);
});
afterAll(() => fixture[Symbol.asyncDispose]());

const at = (...words: string[]) => [...words, "--url", fixture.url];
const detached = async (...words: string[]) => (await run(at("call", ...words, "--detach"))).stdout.trim();

/** A server whose calls become this task. */
const taskServer = (task: () => object, call: () => object = created) =>
  fakeServer(({ method }, reply) => {
    if (method === "tools/call") reply.result(call());
    else if (method === "tasks/get") reply.result(task());
    else reply.error(-32601, "unknown");
  });

describe("0 done", () => {
  test("a plain result is printed on stdout, and nothing on stderr", async () => {
    expect(await run(at("call", "greet", "--arg", "name=Ada"))).toEqual({
      code: 0,
      stdout: "Hello, Ada!\n",
      stderr: "",
    });
  });

  test("a task's result is printed on stdout, and each of its turns as a line on stderr", async () => {
    const { code, stdout, stderr } = await run(at("call", "slow_compute", "--arg", "seconds=0.3", "label=pi"));
    expect({ code, stdout }).toEqual({ code: 0, stdout: "Computed pi in 0.3 s\n" });
    expect(stderr).toMatch(/^\S+ {2}slow_compute {2}working\n\S+ {2}slow_compute {2}completed\n$/);
  });

  test("with --json it is one document", async () => {
    const plain = await run(at("call", "greet", "--json"));
    expect(plain.code).toBe(0);
    expect(parsed(plain)).toMatchObject({
      document: { status: "completed", result: text("Hello, World!") },
      error: undefined,
    });
    const task = await run(at("call", "slow_compute", "--arg", "seconds=0.3", "--json"));
    expect(parsed(task).document).toEqual({
      taskId: expect.stringMatching(/^[\w-]{22}$/),
      status: "completed",
      result: text("Computed  in 0.3 s"),
    });
  });

  test("--detach prints the id alone, and the way back on stderr", async () => {
    const { code, stdout, stderr } = await run(at("call", "slow_compute", "--arg", "seconds=0.1", "--detach"));
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringMatching(/^[\w-]{22}\n$/) });
    expect(stderr).toContain(`mcp-tasks result ${stdout.trim()} --url ${fixture.url}`);
    const json = await run(at("call", "slow_compute", "--detach", "--json"));
    expect(parsed(json).document).toEqual({ taskId: expect.any(String), status: "working" });
  });
});

describe("2 usage", () => {
  test.each([
    ["an unknown command", ["frobnicate"]],
    ["an unknown option", ["get", "x", "--frobnicate"]],
    ["a missing argument", ["call", "--url", "http://127.0.0.1:1/mcp"]],
    ["no server", ["get", "x"]],
    ["two servers", ["get", "x", "--url", "http://127.0.0.1:9/", "--server", "a"]],
    ["a URL that is none", ["get", "x", "--url", "nonsense"]],
    ["a URL with a password", ["get", "x", "--url", "http://me:secret@127.0.0.1:9/"]],
    ["a header without a value", ["get", "x", "--url", "http://127.0.0.1:9/", "--header", "nonsense"]],
    ["a header for a program", ["get", "x", "--header", "a: b", "--stdio", "node"]],
    ["--stdio without a program", ["get", "x", "--stdio"]],
    ["an argument without a name", ["call", "x", "--arg", "nonsense", "--url", "http://127.0.0.1:9/"]],
    ["arguments that are no JSON", ["call", "x", "--args-json", "{", "--url", "http://127.0.0.1:9/"]],
    ["arguments that are no object", ["call", "x", "--args-json", "[]", "--url", "http://127.0.0.1:9/"]],
    ["a file that isn't there", ["call", "x", "--args-json", "@/nowhere", "--url", "http://127.0.0.1:9/"]],
    ["a duration that is none", ["call", "x", "--wait", "soon", "--url", "http://127.0.0.1:9/"]],
    ["a database that is neither", ["ls", "--db", "mysql://localhost/tasks"]],
    ["a database without its file", ["purge"]],
  ])("for %s, with the help to read", async (_, args) => {
    const { code, stdout, stderr } = await run(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^mcp-tasks: .+\n {2}mcp-tasks .+\n$/);
    expect(stderr).not.toContain("secret");
    const json = await run([...args.filter((word) => word !== "--stdio"), "--json"]);
    expect(parsed(json)).toMatchObject({ document: { status: "unknown" }, error: { code: "USAGE", exit: 2 } });
  });
});

describe("the command that comes next", () => {
  const next = async (...args: string[]) =>
    parsed(await run([...args, "--json"], { env: { npm_command: "exec" } })).error.next;

  test("is run by npx where this one was", async () => {
    const url = "http://127.0.0.1:9/mcp";
    expect(await next("get", "x", "--url", url)).toBe(`npx mcp-tasks doctor --url ${url}`);
    expect(await next("get")).toBe("npx mcp-tasks get --help");
    expect(await next("frobnicate")).toBe("npx mcp-tasks --help");
    expect(await next("get", "x")).toBe("npx mcp-tasks get --help");
    expect(await next("purge")).toBe("npx mcp-tasks purge --db FILE");
    expect(await next("worker", "--tools", "x.ts")).toBe("npx mcp-tasks worker --tools FILE --db FILE");
  });
});

describe("3 not authorised", () => {
  test("for a server that wants a token, with the header to give", async () => {
    await using locked = await startFixture(["--tokens", "alice=A"]);
    const { code, stderr } = await run(["call", "greet", "--url", locked.url]);
    expect(code).toBe(3);
    expect(stderr).toContain("--header 'Authorization: Bearer …'");
    const wrong = await run(["call", "greet", "--json", "--url", locked.url, "--header", "Authorization: Bearer B"]);
    expect(wrong.code).toBe(3);
    expect(parsed(wrong).error).toMatchObject({ code: "UNAUTHORISED", exit: 3 });
    expect(wrong.stdout + wrong.stderr).not.toContain("Bearer B");
    const right = await run(["call", "greet", "--url", locked.url, "--header", "Authorization: Bearer A"]);
    expect(right).toMatchObject({ code: 0, stdout: "Hello, World!\n" });
  });

  test.each([401, 403])("for HTTP %i in the middle of a task", async (status) => {
    await using server = await fakeServer(({ method }, reply) =>
      method === "tools/call" ? reply.result(created()) : reply.status(status),
    );
    const ran = await run(["call", "x", "--json", "--url", server.url]);
    expect(ran.code).toBe(3);
    expect(parsed(ran).error).toMatchObject({ code: "REFUSED", taskId: "task-1" });
  });
});

describe("4 unreachable", () => {
  test("for a server that isn't there", async () => {
    const { code, stderr } = await run(["call", "x", "--url", "http://127.0.0.1:9/mcp"]);
    expect(code).toBe(4);
    expect(stderr).toContain("  mcp-tasks doctor --url http://127.0.0.1:9/mcp");
  });

  // Without, it is waited for 30 seconds.
  test.each([
    ["call", "x"],
    ["result", "3fa9c1d2"],
  ])(
    "for a server that takes connections and says nothing: %s waits no longer than it is told",
    { timeout: 15_000 },
    async (...words) => {
      await using mute = createServer((socket) => void socket.on("error", () => {}).resume()).listen(0, "127.0.0.1");
      await once(mute, "listening");
      const url = `http://127.0.0.1:${(mute.address() as AddressInfo).port}/mcp`;
      const { code, stderr } = await run([...words, "--wait", "200ms", "--url", url]);
      expect({ code, stderr }).toEqual({ code: 4, stderr: expect.stringContaining("It doesn't answer.") });
    },
  );

  test("for a program that can't be started", async () => {
    expect(await run(["tools", "--stdio", "/nowhere/at/all"])).toMatchObject({ code: 4, stdout: "" });
  });

  const lost: [string, Script][] = [
    ["the connection was cut", (_, reply) => reply.reset()],
    ["the server answered 503", (_, reply) => reply.status(503)],
    ["the answer was a 404", (_, reply) => reply.status(404)],
    [
      "half an answer came",
      (_, { raw }) => {
        raw.writeHead(200, { "content-type": "application/json", "content-length": "500" });
        raw.write('{"jsonrpc":"2.0","id":', () => raw.destroy());
      },
    ],
    [
      "the stream ended before the answer",
      (_, { raw }) => raw.writeHead(200, { "content-type": "text/event-stream" }).end(": nothing\n\n"),
    ],
  ];
  test.each(lost)("for a call that may have started, since %s; it is sent once", async (_, script) => {
    await using server = await fakeServer((seen, reply) => {
      if (seen.method === "tools/call") script(seen, reply);
      else reply.result(working());
    });
    const ran = await run(["call", "x", "--url", server.url, "--json"]);
    expect(ran.code).toBe(4);
    expect(parsed(ran)).toMatchObject({
      document: { status: "unknown", error: { code: "MAY_HAVE_STARTED" } },
      error: { code: "MAY_HAVE_STARTED", exit: 4, next: expect.stringContaining("mcp-tasks doctor --url") },
    });
    expect(server.of("tools/call")).toHaveLength(1);
  });
});

describe("5 to 10", () => {
  test("5 when the tool reported an error, which still is the result", async () => {
    const { code, stdout, stderr } = await run(at("call", "failing_job"));
    expect({ code, stdout }).toEqual({ code: 5, stdout: "The job failed, as it always does\n" });
    expect(stderr).toContain(`  mcp-tasks tools --url ${fixture.url}`);
    expect(parsed(await run(at("call", "failing_job", "--json")))).toMatchObject({
      document: { status: "completed", result: { isError: true } },
      error: { code: "TOOL_ERROR", exit: 5 },
    });
    // Of an earlier call other arguments are too late.
    const id = await detached("failing_job");
    const { error } = parsed(await run(at("result", id, "--json")));
    expect(error).toEqual({ code: "TOOL_ERROR", exit: 5, message: "The tool reported an error.", taskId: id });
  });

  test("6 when input is needed and standard input is only a pipe, with the question and the command that answers", async () => {
    const { code, stdout, stderr } = await run(at("call", "confirm_delete"));
    expect({ code, stdout }).toEqual({ code: 6, stdout: "" });
    expect(stderr).toMatch(/confirm: Delete file\.txt\?\n {2}--set confirm=… yes or no\n/);
    expect(stderr).toMatch(/\n {2}mcp-tasks answer [\w-]{22} --key confirm --set confirm=… --url .+\n$/);
    expect(parsed(await run(at("call", "confirm_delete", "--json")))).toMatchObject({
      document: { status: "input_required", inputRequests: { confirm: { method: "elicitation/create" } } },
      error: { code: "INPUT_NEEDED", exit: 6 },
    });
  });

  test("6 names a command for one of several questions, that answers it once its values are filled in, and then the next", async () => {
    const plain = { mode: "form", message: "Go?", requestedSchema: { type: "object", properties: {} } };
    const open: Record<string, object> = { who: form("Who?"), go: { ...form("Go?"), params: plain } };
    await using server = await fakeServer(({ method, params }, reply) => {
      if (method === "tools/call") reply.result(created());
      else if (method === "tasks/get") reply.result(Object.keys(open).length === 0 ? completed("went") : asking(open));
      else if (method === "tasks/update") {
        for (const key of Object.keys(params.inputResponses)) delete open[key];
        reply.result(ack);
      } else reply.error(-32601, "unknown");
    });
    const first = `mcp-tasks answer task-1 --key who --set name=… --url ${server.url}`;
    const words = (line: string) => line.trim().split(" ").slice(1);
    const { code, stderr } = await run(["call", "x", "--url", server.url]);
    expect(code).toBe(6);
    expect(stderr.endsWith(`\n  ${first}\n`)).toBe(true);
    expect((await run(["get", "task-1", "--url", server.url])).stderr).toBe(`${first}\n`);
    expect(parsed(await run(["answer", "task-1", "--json", "--url", server.url])).error).toMatchObject({ next: first });
    const asItStands = await run(words(first));
    expect(asItStands.code).toBe(2);
    expect(asItStands.stderr).toContain('name: give a value in place of "…".');
    const filled = await run(words(first.replace("…", "Ada")));
    expect(filled).toMatchObject({ code: 0, stdout: "task-1  input_required\n" });
    const second = `mcp-tasks answer task-1 --key go --accept --url ${server.url}`;
    expect(filled.stderr).toBe(`${second}\n`);
    expect(await run(words(second))).toMatchObject({ code: 0, stdout: "task-1  completed\nwent\n" });
    expect(server.of("tasks/update").map(({ params }) => params.inputResponses)).toEqual([
      { who: { action: "accept", content: { name: "Ada" } } },
      { go: { action: "accept", content: {} } },
    ]);
  });

  test.each([[[]], [["--detach"]]])("6 when input is needed before there is a task %j", async (words) => {
    const ran = await run(at("call", "test_tool_with_task", "--json", ...words));
    expect(ran.code).toBe(6);
    const { document, error } = parsed(ran);
    expect(document.taskId).toBeUndefined();
    expect(error).toMatchObject({ message: expect.stringContaining("before it starts"), code: "INPUT_NEEDED" });
  });

  test("7 when the wait is over, and the task goes on", async () => {
    const ran = await run(at("call", "slow_compute", "--arg", "seconds=30", "--wait", "300ms", "--json"));
    expect(ran.code).toBe(7);
    const { document, error } = parsed(ran);
    expect(document).toEqual({ taskId: expect.any(String), status: "working" });
    expect(error.next).toBe(`mcp-tasks result ${document.taskId} --url ${fixture.url}`);
    expect((await run(at("get", document.taskId))).stdout).toContain("working");
    expect((await run(at("result", document.taskId, "--wait", "100ms"))).code).toBe(7);
  });

  test("8 when the task failed, with the server's own error in the document", async () => {
    const ran = await run(at("call", "protocol_error_job", "--json"));
    expect(ran.code).toBe(8);
    expect(parsed(ran)).toMatchObject({
      document: { status: "failed", error: { code: -32603, message: "The job broke, as it always does" } },
      error: { code: "TASK_FAILED", exit: 8 },
    });
  });

  test.each([[[]], [["--detach"]]])("8 when the call itself was answered with an error %j", async (words) => {
    const ran = await run(at("call", "no_such_tool", "--json", ...words));
    expect(ran.code).toBe(8);
    expect(parsed(ran)).toMatchObject({ document: { status: "failed", error: { code: -32602 } }, error: { exit: 8 } });
  });

  test("9 when the task was cancelled", async () => {
    const id = await detached("slow_compute", "--arg", "seconds=30");
    expect((await run(at("cancel", id, "--wait"))).code).toBe(0);
    const { code, stderr } = await run(at("result", id));
    expect(code).toBe(9);
    expect(stderr).toContain(`\n  mcp-tasks get ${id} --url ${fixture.url}\n`);
    await using server = await taskServer(cancelled);
    const ran = await run(["call", "x", "--json", "--url", server.url]);
    expect(ran.code).toBe(9);
    expect(parsed(ran)).toMatchObject({ document: { status: "cancelled" }, error: { code: "CANCELLED" } });
  });

  test.each(["get", "result", "watch", "cancel", "answer"])(
    "10 when %s is given an id that nobody knows",
    async (command) => {
      const ran = await run(at(command, "nobodyknowsthisid", "--json"));
      expect(ran.code).toBe(10);
      expect(parsed(ran)).toMatchObject({
        document: { taskId: "nobodyknowsthisid", status: "unknown" },
        error: { code: "TASK_NOT_FOUND", exit: 10, next: `mcp-tasks ls --url ${fixture.url}` },
      });
    },
  );

  test("10 when a short id finds nothing says where short ids are known; a whole one is not told that", async () => {
    const id = "Xb0q7LmN4sTuVw3fa9c1d2";
    await using server = await fakeServer(({ method, params }, reply) => {
      if (method === "tools/call") reply.result(created({ taskId: id }));
      else if (params.taskId === id) reply.result(completed("done", { taskId: id }));
      else reply.error(-32602, "unknown");
    });
    const on = (...words: string[]) => run([...words, "--url", server.url]);
    const known = "The beginning of an id is known only where its task was started, until its outcome was shown";
    await on("call", "x", "--detach");
    expect((await on("result", "Xb0q")).code).toBe(0);
    for (const command of ["get", "result", "watch", "cancel", "answer"]) {
      const { code, stderr } = await on(command, "Xb0q");
      expect(code).toBe(10);
      expect(stderr).toContain(`${known}: give the whole id.`);
    }
    expect((await on("get", id)).code).toBe(0);
    const { code, stderr } = await on("get", id.replace("X", "Y"));
    expect(code).toBe(10);
    expect(stderr).not.toContain(known);
  });

  test("10 when the task has expired", async () => {
    await using server = await fakeServer(({ method }, reply) =>
      method === "tools/call" ? reply.result(created()) : reply.error(-32602, "The task has expired"),
    );
    expect(await run(["call", "x", "--url", server.url])).toMatchObject({ code: 10 });
  });
});

describe("1 unexpected", () => {
  test("for a task that breaks the protocol", async () => {
    await using server = await taskServer(() => failed({ nothing: true }));
    expect((await run(["call", "x", "--url", server.url])).code).toBe(1);
  });

  test("for a result that is no tool's, which `get` shows", async () => {
    await using server = await taskServer(() => working({ status: "completed", result: { resultType: "complete" } }));
    const ran = await run(["result", "task-1", "--json", "--url", server.url]);
    expect(ran.code).toBe(1);
    expect(parsed(ran).error).toMatchObject({
      code: "INVALID_RESPONSE",
      next: `mcp-tasks get task-1 --url ${server.url}`,
    });
  });

  test("for a state folder that can't be written, before anything is sent", async () => {
    await using server = await taskServer(completed);
    const ran = await run(["call", "x", "--url", server.url, "--state", "/dev/null/state", "--json"]);
    expect(ran.code).toBe(1);
    expect(parsed(ran).error).toMatchObject({ code: "STATE_UNWRITABLE" });
    expect(server.seen).toEqual([]);
  });
});

describe("130 interrupted", () => {
  test("Ctrl-C lets the task go on, and prints its id and the line that comes back", async () => {
    const running = start(at("call", "slow_compute", "--arg", "seconds=30"));
    await running.said("working");
    running.child.kill("SIGINT");
    const { code, stdout, stderr } = await running.done;
    expect({ code, stdout }).toEqual({ code: 130, stdout: "" });
    const [, id = ""] = /Detached from ([\w-]{22})/.exec(stderr) ?? [];
    expect(stderr).toContain(`  mcp-tasks result ${id} --url ${fixture.url}`);
    expect((await run(at("get", id))).stdout).toContain("working");
  });

  test("a second one soon after has the server cancel it", async () => {
    const running = start(at("call", "slow_compute", "--arg", "seconds=30"));
    await running.said("working");
    running.child.kill("SIGINT");
    await running.said("Detached");
    running.child.kill("SIGINT");
    const { code, stderr } = await running.done;
    expect(code).toBe(130);
    const [, id = ""] = /Detached from ([\w-]{22})/.exec(stderr) ?? [];
    expect((await run(at("result", id))).code).toBe(9);
  });

  test("a server that takes its time to cancel is waited for, until a third one", async () => {
    const cancels: (() => void)[] = [];
    await using server = await fakeServer(({ method }, reply) => {
      if (method === "tasks/cancel") cancels.push(() => reply.result(ack));
      else reply.result(method === "tools/call" ? created() : working());
    });
    const pressedOnce = async () => {
      const running = start(["call", "x", "--url", server.url]);
      await running.said("working");
      running.child.kill("SIGINT");
      await running.said("Detached");
      return running;
    };
    const pressed = async () => {
      const running = await pressedOnce();
      const before = cancels.length;
      running.child.kill("SIGINT");
      await expect.poll(() => cancels.length).toBe(before + 1);
      return running;
    };
    const [patient, hasty] = [await pressed(), await pressed()];
    hasty.child.kill("SIGINT");
    expect((await hasty.done).stderr).toContain("the server has not said whether it cancels the task");
    // One that began later and was pressed once has ended by then.
    expect((await (await pressedOnce()).done).stderr).toContain("the task goes on");
    cancels[0]?.();
    const { code, stderr } = await patient.done;
    expect(code).toBe(130);
    expect(stderr).toContain("the server was asked to cancel the task");
    expect(stderr).not.toContain("the task goes on");
  });

  test.each([
    ["twice", []],
    ["once", []],
    ["once", ["--detach"]],
  ])("before any answer, pressed %s, the call stays in ls %j", async (times, words) => {
    await using server = await fakeServer(() => {});
    const running = start(["call", "x", ...words, "--url", server.url]);
    await expect.poll(() => server.of("tools/call")).toHaveLength(1);
    running.child.kill("SIGINT");
    if (times === "twice") {
      await running.said("Ctrl-C again");
      running.child.kill("SIGINT");
    }
    const { code, stderr } = await running.done;
    expect(code).toBe(130);
    expect(stderr).toContain("it may have started, and stays in ls.\n");
    expect(stderr).toContain(`\n  mcp-tasks ls --url ${server.url}\n`);
    const { tasks } = parsed(await run(["ls", "--json", "--url", server.url])).document;
    expect(tasks).toMatchObject([{ taskId: null, status: "unknown", tool: "x" }]);
  });

  test("with --json there is the document, and the way back in the error", async () => {
    await using server = await taskServer(() => asking({ who: form("Who?") }));
    const running = start(["watch", "task-1", "--json", "--url", server.url]);
    await new Promise((resolve) => running.child.stdout?.once("data", resolve));
    running.child.kill("SIGINT");
    const ran = await running.done;
    expect(ran.code).toBe(130);
    const lines = ran.stdout.trim().split("\n");
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ taskId: "task-1", status: "input_required" });
    expect(JSON.parse(ran.stderr).error).toMatchObject({ code: "INTERRUPTED", exit: 130 });
  });
});
