import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { expect, test, vi } from "vitest";
import {
  type InputHandlers,
  type LoggedTask,
  type TaskClientOptions,
  type TaskLog,
  fileLog,
  memoryLog,
} from "../../src/client/index.ts";
import { entry } from "./entry.ts";
import { type FakeServer, type Reply, fakeServer } from "./fake-http.ts";
import { folder } from "./folder.ts";
import { connected } from "./setup.ts";
import { ack, asking, completed, created, form, text, working } from "./wire.ts";

const named = (name: string) => ({ action: "accept" as const, content: { name } });

/** A log as another process would find it: what was durable at the moment of the crash. */
async function crashed(log: TaskLog): Promise<TaskLog> {
  const copy = memoryLog();
  for (const one of await log.list()) await copy.put(one);
  return copy;
}

/** The entry of a task of this server, as a process that has ended left it. */
async function left(server: FakeServer, more: Partial<LoggedTask> = {}): Promise<TaskLog> {
  const log = memoryLog();
  await log.put(entry({ server: { address: server.url, name: "fake" }, ...more }));
  return log;
}

/** A server whose task asks `who`, until it is answered. */
function questioner(
  onUpdate: (reply: Reply, deliver: () => void) => void = (reply, deliver) => (deliver(), reply.result(ack)),
) {
  const state = { open: true, answers: [] as unknown[] };
  const script = ({ method, params }: { method: string; params: any }, reply: Reply) => {
    if (method === "tools/call") return reply.result(created());
    if (method === "tasks/get") return reply.result(state.open ? asking({ who: form("Who?") }) : completed());
    state.answers.push(params.inputResponses?.who);
    onUpdate(reply, () => (state.open = false));
  };
  return { script, state };
}

test("the intent is in the log before the call is sent, and the task's id before start returns", async () => {
  await using place = await folder();
  const log = fileLog(place.path);
  const seen: LoggedTask[][] = [];
  await using server = await fakeServer((_, reply) => {
    void log.list().then((tasks) => {
      seen.push(tasks);
      reply.result(created({ taskId: "task-9" }));
    });
  });
  const tasks = await connected(server, { log });
  await tasks.start({ name: "slow", arguments: { b: 1, a: [2] } });
  const common = { server: { address: server.url, name: "fake" }, tool: "slow", answers: {} };
  expect(seen).toMatchObject([[{ ...common, taskId: null, state: "calling" }]]);
  expect(await log.list()).toMatchObject([{ ...common, taskId: "task-9", state: "working" }]);
  await tasks.start({ name: "slow", arguments: { a: [2], b: 1 } });
  const digests = (await log.list()).map(({ digest }) => digest);
  expect(digests[0]).toMatch(/^[0-9a-f]{64}$/);
  expect(digests[1]).toBe(digests[0]);
  await tasks.close();
});

test("a task that was waited for when its client went is followed by the next one, and then forgotten", async () => {
  await using place = await folder();
  let over = false;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") reply.result(created());
    else if (method === "tasks/get") reply.result(over ? completed("after the crash") : working());
    else reply.result(ack);
  });
  const log = fileLog(place.path);
  const first = await connected(server, { log });
  const run = await first.start({ name: "slow" });
  await first.close();
  expect(await log.list()).toMatchObject([{ taskId: run.taskId, tool: "slow" }]);
  over = true;
  const second = await connected(server, { log });
  const runs = await second.resumeAll();
  expect(runs.map(({ taskId, tool }) => [taskId, tool])).toEqual([["task-1", "slow"]]);
  expect(await Promise.all(runs.map((one) => one.result()))).toEqual([text("after the crash")]);
  await expect.poll(() => log.list()).toEqual([]);
  await (await second.start({ name: "slow" })).cancel();
  expect(await log.list()).toEqual([]);
  expect(server.of("tools/call")).toHaveLength(2);
  await second.close();
});

test("an answer that was logged and not acknowledged goes out again after a restart, and nobody is asked", async () => {
  const { script, state } = questioner();
  await using server = await fakeServer(script);
  const log = await left(server, { state: "input_required", answers: { who: named("Ada") } });
  const elicit = vi.fn(() => named("Bob"));
  const tasks = await connected(server, { log, input: { elicit } });
  const [run] = await tasks.resumeAll();
  expect(await run?.result()).toEqual(text("done"));
  expect(elicit).not.toHaveBeenCalled();
  expect(state.answers).toEqual([named("Ada")]);
  await tasks.close();
});

test("an answer that was acknowledged is neither sent nor asked for again, though its key is still told", async () => {
  let polls = 0;
  await using server = await fakeServer((_, reply) =>
    reply.result((polls += 1) < 4 ? asking({ who: form("Who?") }) : completed()),
  );
  const log = await left(server, { answers: { who: null } });
  const elicit = vi.fn(() => named("Bob"));
  const tasks = await connected(server, { log, input: { elicit } });
  const [run] = await tasks.resumeAll();
  expect(await run?.result()).toEqual(text("done"));
  expect(elicit).not.toHaveBeenCalled();
  expect(server.of("tasks/update")).toEqual([]);
  await tasks.close();
});

test("an answer is in the log before it is sent, and its content leaves it with the acknowledgement", async () => {
  const log = memoryLog();
  const seen: unknown[] = [];
  const { script } = questioner((reply, deliver) => {
    void log.list().then(([one]) => {
      seen.push(one?.answers);
      deliver();
      reply.result(ack);
    });
  });
  await using server = await fakeServer(script);
  const puts: unknown[] = [];
  const spy = { ...log, put: (task: LoggedTask) => (puts.push(task.answers), log.put(task)) };
  const tasks = await connected(server, { log: spy, input: { elicit: () => named("Ada") } });
  await tasks.callTool({ name: "x" });
  expect(seen).toEqual([{ who: named("Ada") }]);
  expect(puts.at(-1)).toEqual({ who: null });
  await tasks.close();
});

test("what one process answered stays in the log, whatever another one writes about the same task", async () => {
  await using place = await folder();
  const log = fileLog(place.path);
  const arrived = Promise.withResolvers<void>();
  await using server = await fakeServer(({ method, params }, reply) => {
    if (method === "tools/call") reply.result(created());
    else if (method === "tasks/get") reply.result(asking({ one: form("One?"), two: form("Two?") }));
    else if (Object.hasOwn(params.inputResponses, "two")) arrived.resolve();
    else reply.result(ack);
  });
  const one = Promise.withResolvers<ReturnType<typeof named>>();
  const asked = Promise.withResolvers<void>();
  const elicit: InputHandlers["elicit"] = async (_, { key }) => {
    if (key !== "one") return undefined;
    asked.resolve();
    return await one.promise;
  };
  const first = await connected(server, { log, input: { elicit } });
  void first.callTool({ name: "slow" }).catch(() => {});
  await asked.promise;
  const program = path.join(import.meta.dirname, "answerer.ts");
  const words = ["--conditions=mcp-tasks-dev", program, server.url, place.path, "task-1", "two", "Bob"];
  const second = spawn(process.execPath, words, { stdio: "inherit" });
  await arrived.promise;
  second.kill("SIGKILL");
  await once(second, "close");
  one.resolve(named("Ada"));
  // The first one's answer was acknowledged, the second one's was not.
  await expect.poll(async () => (await log.list())[0]?.answers.one).toBeNull();
  expect(await log.list()).toMatchObject([{ answers: { one: null, two: named("Bob") } }]);
  const copy = await crashed(log);
  await first.close();
  const again = vi.fn();
  const third = await connected(server, { log: copy, input: { elicit: again } });
  for (const run of await third.resumeAll()) void run.result().catch(() => {});
  const sent = () => server.of("tasks/update").map(({ params }) => params.inputResponses);
  await expect.poll(sent).toEqual([{ two: named("Bob") }, { one: named("Ada") }, { two: named("Bob") }]);
  expect(again).not.toHaveBeenCalled();
  await third.close();
});

test("a question that was open when the process died is asked by the next one", async () => {
  const { script, state } = questioner();
  await using server = await fakeServer(script);
  const log = memoryLog();
  const asked = Promise.withResolvers<void>();
  const forever = () => (asked.resolve(), new Promise<never>(() => {}));
  const first = await connected(server, { log, input: { elicit: forever } });
  (await first.start({ name: "x" })).result().catch(() => {});
  await asked.promise;
  const second = await connected(server, { log: await crashed(log), input: { elicit: () => named("Ada") } });
  const [run] = await second.resumeAll();
  expect(await run?.result()).toEqual(text("done"));
  expect(state.answers).toEqual([named("Ada")]);
  await first.close();
  await second.close();
});

test("an answer that the server refused may be given anew after a restart", async () => {
  const { script } = questioner((reply) => reply.error(-32602, "Bad answer"));
  await using server = await fakeServer(script);
  const log = memoryLog();
  const tasks = await connected(server, { log, input: { elicit: () => named("Ada") } });
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code: "INPUT_FAILED" });
  await tasks.close();
  expect(await log.list()).toMatchObject([{ taskId: "task-1", answers: {} }]);
});

test("a call that a crash cut off is MAY_HAVE_STARTED once, and never sent again", async () => {
  await using server = await fakeServer((_, reply) => reply.result(completed()));
  const log = await left(server, { call: "lost", taskId: null, state: "calling", tool: "deploy", startedAt: 5 });
  await log.put({ ...(await log.list())[0]!, call: "asked", state: "asking" });
  const tasks = await connected(server, { log });
  const runs = await tasks.resumeAll();
  expect(runs.map(({ taskId, tool }) => [taskId, tool])).toEqual([[undefined, "deploy"]]);
  expect(await log.list()).toHaveLength(1);
  const thrown = { code: "MAY_HAVE_STARTED", data: { tool: "deploy", startedAt: 5 } };
  await expect(runs[0]?.result()).rejects.toMatchObject(thrown);
  await expect.poll(() => log.list()).toEqual([]);
  expect(server.seen).toEqual([]);
  await tasks.close();
});

test("a call that is on its way in this process is not taken for one that a crash cut off", async () => {
  const arrived = Promise.withResolvers<Reply>();
  await using server = await fakeServer(({ method }, reply) =>
    method === "tools/call" ? arrived.resolve(reply) : reply.result(completed()),
  );
  const log = memoryLog();
  const tasks = await connected(server, { log });
  const result = tasks.callTool({ name: "x" });
  const reply = await arrived.promise;
  expect(await tasks.resumeAll()).toEqual([]);
  reply.result(created());
  expect(await result).toEqual(text("done"));
  await tasks.close();
});

test.each<[string, (reply: Reply) => void]>([
  ["a plain result", (reply) => reply.result({ resultType: "complete", ...text("now") })],
  ["an error", (reply) => reply.error(-32602, "Unknown tool")],
  ["a lost answer, of which the caller is told", (reply) => reply.reset()],
])("nothing stays in the log of a call that ended with %s", async (_, answer) => {
  await using server = await fakeServer((_seen, reply) => answer(reply));
  const log = memoryLog();
  const tasks = await connected(server, { log });
  await tasks.callTool({ name: "x" }).catch(() => {});
  await expect.poll(() => log.list()).toEqual([]);
  await tasks.close();
});

test("while the server asks before it starts, the log knows that nothing runs yet", async () => {
  const log = memoryLog();
  const states: (string | undefined)[] = [];
  await using server = await fakeServer(({ method, params }, reply) => {
    void log.list().then(([one]) => {
      states.push(one?.state);
      if (method !== "tools/call") return reply.result(completed());
      const inputRequests = { who: form("Who?") };
      reply.result(params.inputResponses === undefined ? { resultType: "input_required", inputRequests } : created());
    });
  });
  const elicit = async () => {
    states.push((await log.list())[0]?.state);
    return named("Ada");
  };
  const tasks = await connected(server, { log, input: { elicit } });
  await tasks.callTool({ name: "x" });
  expect(states).toEqual(["calling", "asking", "calling", "working"]);
  await tasks.close();
});

test("a call whose intent can't be logged is not sent; after that a failing log costs nobody a task", async () => {
  await using server = await fakeServer(({ method }, reply) =>
    reply.result(method === "tools/call" ? created() : completed()),
  );
  const broken = { ...memoryLog(), put: () => Promise.reject(new Error("disk full")) };
  const none = await connected(server, { log: broken });
  await expect(none.start({ name: "x" })).rejects.toThrow("disk full");
  expect(server.seen).toEqual([]);
  await none.close();
  let puts = 0;
  const log = memoryLog();
  const filling = { ...log, put: (one: LoggedTask) => ((puts += 1) > 1 ? broken.put() : log.put(one)) };
  const errors: unknown[] = [];
  const careless = await connected(server, { log: filling, onError: (error) => errors.push(error) });
  expect(await (await careless.start({ name: "x" })).result()).toEqual(text("done"));
  expect(errors[0]).toMatchObject({ message: "disk full" });
  await careless.close();
});

test("tasks of another server in the same log are left alone, and their ids are not sent to this one", async () => {
  await using mine = await fakeServer((_, reply) => reply.result(completed("mine")));
  await using other = await fakeServer((_, reply) => reply.result(completed("other", { taskId: "theirs" })));
  const log = await left(other, { taskId: "theirs" });
  await log.put(entry({ call: "2", server: { address: mine.url, name: "fake" }, taskId: "ours" }));
  await log.put(entry({ call: "3", server: { address: mine.url, name: "another name" }, taskId: "renamed" }));
  const tasks = await connected(mine, { log });
  expect((await tasks.resumeAll()).map(({ taskId }) => taskId)).toEqual(["ours"]);
  for (const taskId of ["theirs", "renamed"]) {
    const thrown = { code: "OTHER_SERVER", data: { taskId } };
    await expect(tasks.resume(taskId).result()).rejects.toMatchObject(thrown);
    await expect(tasks.get(taskId)).rejects.toMatchObject(thrown);
    await expect(tasks.cancel(taskId)).rejects.toMatchObject(thrown);
    await expect(tasks.answer(taskId, "who", named("Ada"))).rejects.toMatchObject(thrown);
  }
  expect(mine.seen).toEqual([]);
  await tasks.close();
  const there = await connected(other, { log });
  expect(await Promise.all((await there.resumeAll()).map((run) => run.result()))).toEqual([text("other")]);
  await there.close();
});

test("a client that is connected to another server meanwhile sends it no ids of the first", async () => {
  await using first = await fakeServer(({ method }, reply) =>
    reply.result(method === "tools/call" ? created() : working()),
  );
  await using second = await fakeServer((_, reply) => reply.result(completed()));
  const tasks = await connected(first);
  const result = tasks.callTool({ name: "x" });
  result.catch(() => {});
  await vi.waitFor(() => expect(first.of("tasks/get").length).toBeGreaterThan(0));
  await tasks.client.close();
  await tasks.connect(second.url);
  await expect(result).rejects.toMatchObject({ data: { taskId: "task-1" } });
  expect(second.seen).toEqual([]);
  await tasks.close();
});

test("a URL's query and a server's own name for itself: the one is kept out of the log, the other tells servers apart", async () => {
  await using server = await fakeServer((_, reply) => reply.result(created()));
  const log = memoryLog();
  const tasks = await connected({ ...server, url: `${server.url}?token=secret` }, { log });
  await tasks.start({ name: "x" });
  expect(await log.list()).toMatchObject([{ server: { address: server.url, name: "fake" } }]);
  expect(JSON.stringify(await log.list())).not.toContain("secret");
  const called = await connected(server, { log, server: "production" });
  await called.start({ name: "x" });
  expect((await log.list()).map((one) => one.server.address)).toEqual([server.url, "production"]);
  await tasks.close();
  await called.close();
});

test.each([[true], [false]])(
  "two handles on one task ask each question once and read the task once a poll (two clients: %s)",
  async (twoClients) => {
    const { script, state } = questioner();
    await using server = await fakeServer(script);
    const elicit = vi.fn(async () => {
      await vi.waitFor(() => expect(server.of("tasks/get").length).toBeGreaterThan(3), { timeout: 5_000 });
      return named("Ada");
    });
    const options: TaskClientOptions = { log: memoryLog(), input: { elicit } };
    const tasks = await connected(server, options);
    const other = twoClients ? await connected(server, options) : tasks;
    const run = await tasks.start({ name: "x" });
    const again = other.resume("task-1");
    const [more] = await other.resumeAll();
    expect(await Promise.all([run, again, more!].map((one) => one.result()))).toEqual(Array(3).fill(text("done")));
    expect(elicit).toHaveBeenCalledTimes(1);
    expect(state.answers).toEqual([named("Ada")]);
    const waits = server.of("tasks/get").map(({ at }) => at);
    if (!twoClients) for (let at = 1; at < 4; at += 1) expect(waits[at]! - waits[at - 1]!).toBeGreaterThan(200);
    await tasks.close();
    if (twoClients) await other.close();
  },
);

test("a handle that leaves takes nothing from the other, and the last one takes the question back", async () => {
  const { script } = questioner();
  await using server = await fakeServer(script);
  const signals: AbortSignal[] = [];
  const elicit = vi.fn((_: unknown, { signal }: { signal: AbortSignal }) => {
    signals.push(signal);
    return new Promise<never>(() => {});
  });
  const tasks = await connected(server, { input: { elicit } });
  const run = await tasks.start({ name: "x" });
  const again = tasks.resume("task-1");
  const results = [run.result(), again.result()];
  for (const one of results) one.catch(() => {});
  await vi.waitFor(() => expect(signals).toHaveLength(1));
  run.detach();
  await expect(results[0]).rejects.toMatchObject({ code: "DETACHED" });
  expect(signals[0]?.aborted).toBe(false);
  again.detach();
  expect(signals[0]?.aborted).toBe(true);
  tasks
    .resume("task-1")
    .result()
    .catch(() => {});
  await vi.waitFor(() => expect(signals).toHaveLength(2));
  await tasks.close();
});

test("a task that was detached stays in the log, one that was cancelled leaves it when the server knows", async () => {
  let refuse = true;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") reply.result(created());
    else if (method === "tasks/get") reply.result(working());
    else if (refuse) reply.error(-32601, "no");
    else reply.result(ack);
  });
  const log = memoryLog();
  const tasks = await connected(server, { log });
  const run = await tasks.start({ name: "x" });
  run.detach();
  expect(await log.list()).toHaveLength(1);
  const again = tasks.resume("task-1");
  await expect(again.cancel()).rejects.toMatchObject({ code: "REFUSED" });
  expect(await log.list()).toHaveLength(1);
  refuse = false;
  const [known] = await log.list();
  await tasks.resume("task-1", { keep: true }).cancel();
  await tasks.cancel("task-1", { keep: true });
  expect(await log.list()).toEqual([known]);
  await tasks.resume("task-1").cancel();
  expect(await log.list()).toEqual([]);
  await tasks.close();
});

test("a task that is kept stays in the log with its final state until it is forgotten", async () => {
  await using server = await fakeServer(({ method }, reply) =>
    reply.result(method === "tools/call" ? created() : completed()),
  );
  const log = memoryLog();
  const tasks = await connected(server, { log });
  await tasks.callTool({ name: "x" }, { keep: true });
  await expect.poll(() => log.list()).toMatchObject([{ taskId: "task-1", state: "completed" }]);
  expect(await (await tasks.resumeAll({ keep: true }))[0]?.result()).toEqual(text("done"));
  await tasks.forget("task-1");
  expect(await log.list()).toEqual([]);
  await tasks.close();
});

test("what a host does at once with a result comes before the log forgets the task", async () => {
  await using server = await fakeServer(({ method }, reply) =>
    reply.result(method === "tools/call" ? created() : completed()),
  );
  const log = memoryLog();
  const events: string[] = [];
  const spy = { ...log, remove: (call: string) => (events.push("forgotten"), log.remove(call)) };
  const tasks = await connected(server, { log: spy });
  await tasks.callTool({ name: "x" });
  events.push("stored");
  await vi.waitFor(() => expect(events).toHaveLength(2));
  expect(events).toEqual(["stored", "forgotten"]);
  const run = await tasks.start({ name: "x" });
  for await (const { status } of run) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    events.push(status);
  }
  await vi.waitFor(() => expect(events).toHaveLength(5));
  expect(events.slice(2)).toEqual(["working", "completed", "forgotten"]);
  await tasks.close();
});

test("a task that the server no longer knows is forgotten", async () => {
  await using server = await fakeServer((_, reply) => reply.error(-32602, "Task not found"));
  const log = await left(server);
  const tasks = await connected(server, { log });
  const [run] = await tasks.resumeAll();
  await expect(run?.result()).rejects.toMatchObject({ code: "TASK_NOT_FOUND" });
  await expect.poll(() => log.list()).toEqual([]);
  await tasks.close();
});

test("a task of a living process is left to it", async () => {
  await using server = await fakeServer((_, reply) => reply.result(completed()));
  const log = await left(server, { heldElsewhere: true });
  const tasks = await connected(server, { log });
  expect(await tasks.resumeAll()).toEqual([]);
  await tasks.close();
});

test("a task resumed by its id alone is in the log once the server has told about it", async () => {
  let over = false;
  await using server = await fakeServer((_, reply) => reply.result(over ? completed() : working()));
  const log = memoryLog();
  const tasks = await connected(server, { log });
  const result = tasks.resume("task-1").result();
  await expect.poll(() => log.list()).toMatchObject([{ taskId: "task-1", tool: null, digest: null, state: "working" }]);
  over = true;
  expect(await result).toEqual(text("done"));
  await expect.poll(() => log.list()).toEqual([]);
  await tasks.close();
});

test("a task can be read once and answered by hand, without following it", async () => {
  const { script, state } = questioner();
  await using server = await fakeServer(script);
  const log = await left(server);
  const tasks = await connected(server, { log });
  expect(await tasks.get("task-1")).toMatchObject({ status: "input_required", unhandledInput: ["who"] });
  await tasks.answer("task-1", "who", named("Ada"));
  expect(state.answers).toEqual([named("Ada")]);
  expect(await log.list()).toMatchObject([{ answers: { who: null } }]);
  expect(await tasks.get("task-1")).toMatchObject({ status: "completed", unhandledInput: [] });
  const aborted = { signal: AbortSignal.abort() };
  await expect(tasks.get("task-1", aborted)).rejects.toMatchObject({ code: "DETACHED" });
  await expect(tasks.cancel("task-1", aborted)).rejects.toMatchObject({ code: "DETACHED" });
  expect(server.of("tasks/cancel")).toEqual([]);
  await tasks.close();
});
