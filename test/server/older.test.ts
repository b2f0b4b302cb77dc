import { describe, expect, test } from "vitest";
import { completed, eventually, open, question, type Served } from "./harness.ts";
import { everyInput, oldClient } from "./old-client.ts";

/** Protocols before 2025-11-25: they know neither tasks, nor pages to visit, nor tools for a model. */

const take = (served: Served) => eventually(() => served.claim().catch(() => undefined));

describe.each(["2025-06-18", "2025-03-26", "2024-11-05"])("a client of %s", (protocol) => {
  const connect = (served: Served) => oldClient(served.listening.url, everyInput, undefined, "older", protocol);

  test("sees no tasks and is served none", async () => {
    await using served = await open();
    const client = await connect(served);
    expect(client.hello.result.protocolVersion).toBe(protocol);
    expect(client.hello.result.capabilities).toHaveProperty("tools");
    expect(client.hello.result.capabilities).not.toHaveProperty("tasks");
    const { tools } = (await client.call("tools/list")).result;
    expect(tools.length).toBeGreaterThan(3);
    for (const tool of tools) expect(tool).not.toHaveProperty("execution");
    const taskId = await served.create();
    for (const method of ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"])
      expect((await client.call(method, { taskId })).error, method).toMatchObject({ code: -32601 });
    expect(await served.engine.read(taskId, "")).toMatchObject({ cancelRequested: false });
    // The same without a session, whose protocol is then what the header says.
    expect((await client.call("tasks/get", { taskId }, { session: null })).error).toMatchObject({ code: -32601 });
  });

  // 2025-11-25, "Task Support and Handling": who declares no tasks ignores the parameter.
  test("is answered as if it had not asked for a task, and asked what it knows", async () => {
    await using served = await open();
    const client = await connect(served);
    const greeted = await client.call("tools/call", { name: "plain", arguments: { name: "Ada" }, task: {} });
    expect(greeted.result.content).toEqual([{ type: "text", text: "Hello, Ada!" }]);
    const call = { name: "optional", arguments: { text: "x" }, task: { ttl: 5 } };
    const stream = await client.stream("tools/call", call);
    const claim = await take(served);
    expect(claim.client).toMatchObject({
      tasks: false,
      elicitation: { form: true, url: false },
      sampling: { basic: true, tools: false },
      roots: true,
    });
    const inputs = [{ key: "sure", request: question("sure?") }];
    await served.engine.attempts.park(claim, { inputs, events: [], timers: [] }, false);
    const asked = await stream.next();
    await client.respond(asked, { action: "accept", content: { ok: true } });
    await served.finish(await take(served), completed("done"));
    expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
  });
});
