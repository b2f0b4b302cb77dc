import { expect, test, vi } from "vitest";
import type { InputHandlers, TaskSnapshot } from "../../src/client/index.ts";
import { type Reply, fakeServer } from "./fake-http.ts";
import { connected } from "./setup.ts";
import { ack, asking, cancelled, completed, created, form, text, working } from "./wire.ts";

const sampling = {
  method: "sampling/createMessage",
  params: { messages: [{ role: "user", content: { type: "text", text: "Hi" } }], maxTokens: 10 },
};
const named = (name: string) => ({ action: "accept" as const, content: { name } });

/** A server whose task asks `requests`, drops each that is answered, and completes when none is left. */
function questioner(
  requests: Record<string, object>,
  onUpdate?: (reply: Reply, deliver: () => void, nth: number) => void,
) {
  const open: Record<string, object> = { ...requests };
  const answers: Record<string, unknown>[] = [];
  const script = ({ method, params }: { method: string; params: any }, reply: Reply) => {
    if (method === "tools/call") return reply.result(created());
    if (method === "tasks/cancel") return reply.result(ack);
    if (method === "tasks/get") return reply.result(Object.keys(open).length > 0 ? asking({ ...open }) : completed());
    answers.push(params.inputResponses);
    const deliver = () => {
      for (const key of Object.keys(params.inputResponses)) delete open[key];
    };
    if (onUpdate !== undefined) return onUpdate(reply, deliver, answers.length);
    deliver();
    reply.result(ack);
  };
  return { script, answers, open };
}

test("each question is asked once and answered once, as the answers come, however often it is shown", async () => {
  const { script, answers } = questioner({ first: form("First?"), second: form("Second?"), third: sampling });
  await using server = await fakeServer(script);
  const asked: string[] = [];
  const last = Promise.withResolvers<void>();
  const input: InputHandlers = {
    async elicit({ message }, { key, taskId }) {
      asked.push(`${taskId} ${key} ${message}`);
      if (key === "first") await last.promise;
      return named(key);
    },
    sample: () => ({ role: "assistant", model: "m", content: { type: "text", text: "Hello" } }),
  };
  const tasks = await connected(server, { input });
  const result = tasks.callTool({ name: "x" });
  await vi.waitFor(() => expect(answers).toHaveLength(2));
  await vi.waitFor(() => expect(server.of("tasks/get").length).toBeGreaterThan(3), { timeout: 5_000 });
  last.resolve();
  expect(await result).toEqual(text("done"));
  expect(asked).toEqual(["task-1 first First?", "task-1 second Second?"]);
  expect(answers).toHaveLength(3);
  expect(Object.assign({}, ...answers)).toEqual({
    first: named("first"),
    second: named("second"),
    third: { role: "assistant", model: "m", content: { type: "text", text: "Hello" } },
  });
  await tasks.close();
});

test("an answered key is never sent again while the server takes its time to show it", async () => {
  let polls = 0;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") reply.result(created());
    else if (method === "tasks/update") reply.result(ack);
    else reply.result((polls += 1) < 5 ? asking({ who: form("Who?") }) : completed());
  });
  const tasks = await connected(server, { input: { elicit: () => named("Ada") } });
  await tasks.callTool({ name: "x" });
  expect(server.of("tasks/update")).toHaveLength(1);
  await tasks.close();
});

test("a question is taken back when its task ends meanwhile, and its late answer is not sent", async () => {
  let over = false;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") reply.result(created());
    else if (method === "tasks/get") reply.result(over ? cancelled() : asking({ who: form("Who?") }));
    else reply.result(ack);
  });
  const fired = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<void>();
  const input: InputHandlers = {
    async elicit(_, { signal }) {
      signal.addEventListener("abort", () => fired.resolve());
      over = true;
      await fired.promise;
      queueMicrotask(answered.resolve);
      return named("too late");
    },
  };
  const tasks = await connected(server, { input });
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code: "CANCELLED" });
  await answered.promise;
  expect(server.of("tasks/update")).toHaveLength(0);
  await tasks.close();
});

test("a question that somebody else answered is taken back, and the task goes on", async () => {
  let polls = 0;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") return reply.result(created());
    polls += 1;
    reply.result([asking({ who: form("Who?") }), working(), completed()][polls - 1]);
  });
  const signals: AbortSignal[] = [];
  const input: InputHandlers = {
    elicit(_, { signal }) {
      signals.push(signal);
      return new Promise(() => {});
    },
  };
  const tasks = await connected(server, { input });
  expect(await tasks.callTool({ name: "x" })).toEqual(text("done"));
  expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
  await tasks.close();
});

test("a form whose handler throws is answered as cancelled, and the fault is reported", async () => {
  const { script, answers } = questioner({ who: form("Who?") });
  await using server = await fakeServer(script);
  const errors: unknown[] = [];
  const fault = new Error("no window");
  const elicit = () => {
    throw fault;
  };
  const tasks = await connected(server, { input: { elicit }, onError: (error) => errors.push(error) });
  await tasks.callTool({ name: "x" });
  expect(answers).toEqual([{ who: { action: "cancel" } }]);
  expect(errors).toEqual([fault]);
  await tasks.close();
});

test.each<[string, object, InputHandlers]>([
  ["a model that fails", sampling, { sample: () => Promise.reject(new Error("no model")) }],
  ["roots that fail", { method: "roots/list" }, { roots: () => Promise.reject(new Error("no disk")) }],
  ["an accept without content", form("Who?"), { elicit: () => ({ action: "accept" }) }],
  ["content that the form refuses", form("Who?"), { elicit: () => ({ action: "accept", content: { name: 7 } }) }],
])("%s is surfaced as INPUT_FAILED: nothing is sent and the task is left open", async (_, request, input) => {
  const { script } = questioner({ key: request });
  await using server = await fakeServer(script);
  const tasks = await connected(server, { input });
  const thrown = { code: "INPUT_FAILED", data: { taskId: "task-1", key: "key" } };
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject(thrown);
  expect(server.of("tasks/update")).toHaveLength(0);
  expect(server.of("tasks/cancel")).toHaveLength(0);
  await tasks.close();
});

test("what nobody here answers is left open and said so, while the rest is answered", async () => {
  const url = { method: "elicitation/create", params: { mode: "url", message: "Go", url: "https://example.com" } };
  const requests = {
    who: form("Who?"),
    go: url,
    model: sampling,
    roots: { method: "roots/list" },
    odd: { method: "future/ask" },
  };
  const { script, answers, open } = questioner(requests);
  await using server = await fakeServer(script);
  const tasks = await connected(server, { input: { elicit: () => named("Ada") } });
  const seen: TaskSnapshot[] = [];
  const result = tasks.callTool({ name: "x" }, { onUpdate: (snapshot) => seen.push(snapshot) });
  await vi.waitFor(() => expect(Object.keys(open)).toHaveLength(4));
  const waiting = () => seen.find(({ unhandledInput }) => unhandledInput.length > 0);
  expect(waiting()?.unhandledInput).toEqual(["go", "model", "roots", "odd"]);
  for (const key of Object.keys(open)) delete open[key];
  expect(await result).toEqual(text("done"));
  expect(answers).toEqual([{ who: named("Ada") }]);
  expect(seen.at(-1)?.unhandledInput).toEqual([]);
  await tasks.close();
});

test("an answer that was lost on the way is sent again, because its key is still outstanding", async () => {
  const { script, answers } = questioner({ who: form("Who?") }, (reply, deliver, nth) => {
    if (nth === 1) return reply.status(503);
    deliver();
    reply.result(ack);
  });
  await using server = await fakeServer(script);
  const asked: string[] = [];
  const elicit: InputHandlers["elicit"] = (_, { key }) => {
    asked.push(key);
    return named("Ada");
  };
  const tasks = await connected(server, { input: { elicit } });
  await tasks.callTool({ name: "x" });
  expect(asked).toEqual(["who"]);
  expect(answers).toEqual([{ who: named("Ada") }, { who: named("Ada") }]);
  await tasks.close();
});

test("an answer whose acknowledgement was lost is not sent again", async () => {
  const { script, answers } = questioner({ who: form("Who?") }, (reply, deliver) => {
    deliver();
    reply.reset();
  });
  await using server = await fakeServer(script);
  const tasks = await connected(server, { input: { elicit: () => named("Ada") } });
  expect(await tasks.callTool({ name: "x" })).toEqual(text("done"));
  expect(answers).toHaveLength(1);
  await tasks.close();
});

test("an update that a finished task refuses does no harm", async () => {
  let over = false;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") return reply.result(created());
    if (method === "tasks/get") return reply.result(over ? completed() : asking({ who: form("Who?") }));
    over = true;
    reply.error(-32602, "The task is already completed");
  });
  const tasks = await connected(server, { input: { elicit: () => named("Ada") } });
  expect(await tasks.callTool({ name: "x" })).toEqual(text("done"));
  await tasks.close();
});

test("an answer that the server refuses while it still asks is surfaced, and no silent hang", async () => {
  const { script, answers } = questioner({ who: form("Who?") }, (reply) => reply.error(-32602, "Bad answer"));
  await using server = await fakeServer(script);
  const tasks = await connected(server, { input: { elicit: () => named("Ada") } });
  const thrown = { code: "INPUT_FAILED", cause: { rpc: -32602, message: "Bad answer" } };
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject(thrown);
  expect(answers).toHaveLength(1);
  await tasks.close();
});

test("after an answer the task is looked at soon, whatever interval its waiting asked for", async () => {
  let answered = false;
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "tools/call") return reply.result(created({ status: "input_required" }));
    if (method === "tasks/get") {
      return reply.result(answered ? completed() : asking({ who: form("Who?") }, { pollIntervalMs: 30_000 }));
    }
    answered = true;
    reply.result(ack);
  });
  const tasks = await connected(server, { input: { elicit: () => named("Ada") } });
  const started = performance.now();
  await tasks.callTool({ name: "x" });
  expect(performance.now() - started).toBeLessThan(3_000);
  await tasks.close();
});
