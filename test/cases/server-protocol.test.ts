import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { tasksExtension } from "../../src/protocol/capabilities.ts";
import { taskTool } from "../../src/tool.ts";
import { everything, type Reply, type Wire } from "../wire/client.ts";
import { stdioWire } from "../wire/stdio.ts";
import { bench, text, type Bench } from "./bench.ts";
import { accept, folder, nodeArgs, rawPost, rawRequest, until } from "./setup.ts";
import { asked, askOne, askTwo, before, broken, count, long, quick, remove, said, seen, take, widen } from "./tools.ts";

/*
 * Faults of other implementations in the server's side of the protocol.
 *
 * Elsewhere: BL-13 and BL-20 are faults of clients, see test/client. How tasks end (BL-17 to BL-19, BL-21, BL-23, BL-26,
 * BL-27) is in server-results.test.ts. The wire client checks the form of every answer in every test.
 */

let shared: Bench;
let client: Wire;
beforeAll(async () => {
  shared = await bench([askOne, askTwo, widen, remove, quick, long, broken, before]);
  client = shared.wire();
});
afterAll(() => shared[Symbol.asyncDispose]());

describe("answers", () => {
  test("BL-02: an answer reaches the handler and the task goes on to its end", async () => {
    const id = await client.start("ask_one", { label: "bl02" });
    const [key = ""] = Object.keys(await asked(client, id));
    await client.update(id, { [key]: take("blue") });
    expect(said((await client.until(id)).result)).toBe("blue");
    expect(count("bl02 got blue")).toBe(1);
  });

  test("BL-03: a second question under the same name has a key of its own, and a key always means one request", async () => {
    const id = await client.start("ask_two", { label: "bl03" });
    const requests = new Map<string, string>();
    await client.untilTask(id, (task) => {
      for (const [key, request] of Object.entries(task.inputRequests ?? {})) {
        const shown = JSON.stringify(request);
        expect(requests.get(key) ?? shown).toBe(shown);
        if (!requests.has(key)) void client.update(id, { [key]: take(`answer ${requests.size}`) });
        requests.set(key, shown);
      }
      return task.status === "completed";
    });
    expect([...requests.values()].map((shown) => /First|Second/.exec(shown)?.[0])).toEqual(["First", "Second"]);
  });

  test("BL-03: an open question keeps its key and its form when another one joins it", async () => {
    const id = await client.start("widen");
    const alone = await asked(client, id);
    expect(Object.keys(alone)).toEqual(["a"]);
    await shared.tasks.send(id, "more", true);
    const both = await client.untilTask(id, (task) => Object.keys(task.inputRequests ?? {}).length === 2);
    expect(both.inputRequests?.a).toEqual(alone.a);
    await client.update(id, { a: take("1") });
    const left = await client.untilTask(id, (task) => task.inputRequests?.a === undefined);
    expect(left.status).toBe("input_required");
    await client.update(id, { b: take("2") });
    expect(said((await client.until(id)).result)).toBe("1 2");
  });

  test("BL-04: of twenty answers to one question exactly one counts, and a late one changes nothing", async () => {
    const id = await client.start("ask_two", { label: "bl04" });
    const [first = ""] = Object.keys(await asked(client, id));
    const answers = Array.from({ length: 20 }, (_, index) => `answer-${index}`);
    const replies = await Promise.all(answers.map((given) => client.update(id, { [first]: take(given) })));
    expect(replies.map(({ body }) => body.error)).toEqual(answers.map(() => undefined));
    const open = await client.untilTask(
      id,
      (task) => task.inputRequests !== undefined && !(first in task.inputRequests),
    );
    const [second = ""] = Object.keys(open.inputRequests ?? {});

    expect((await client.update(id, { [first]: take("late") })).body.error).toBeUndefined();
    const { pollIntervalMs: _, _meta: __, ...after } = (await client.get(id)).body.result ?? {};
    expect(after).toEqual({ ...open, pollIntervalMs: undefined, _meta: undefined });

    await client.update(id, { [second]: take("end") });
    const [got = "", end] = (said((await client.until(id)).result) ?? "").split(" ");
    expect(answers).toContain(got);
    expect(end).toBe("end");
    expect(count("bl04 mid")).toBe(1);
  });

  test("BL-05: in fifty runs the first answer never wakes a handler that waits for the second", async () => {
    const run = async (index: number) => {
      const id = await client.start("ask_two", { label: `bl05-${index}` });
      const [first = ""] = Object.keys(await asked(client, id));
      await client.update(id, { [first]: take("one") });
      const open = await client.untilTask(
        id,
        (task) => task.inputRequests !== undefined && !(first in task.inputRequests),
      );
      await pause(50);
      expect((await client.get(id)).body.result?.status).toBe("input_required");
      await client.update(id, { [Object.keys(open.inputRequests ?? {})[0] ?? ""]: take("two") });
      expect(said((await client.until(id)).result)).toBe("one two");
      expect(["before", "mid", "after"].map((word) => count(`bl05-${index} ${word}`))).toEqual([1, 1, 1]);
    };
    await Promise.all(Array.from({ length: 50 }, (_, index) => run(index)));
  });

  test("BL-06: an answer under a wrong key is acknowledged and ignored; the question stays", async () => {
    const id = await client.start("ask_one", { label: "bl06" });
    const open = await client.until(id, "input_required");
    expect((await client.update(id, { wrong: take("red") })).body.result?.resultType).toBe("complete");
    const still = (await client.get(id)).body.result;
    expect(still?.inputRequests).toEqual(open.inputRequests);
    expect(still?.lastUpdatedAt).toBe(open.lastUpdatedAt);
    await client.cancel(id);
  });

  test.each(["completed", "failed", "cancelled"])(
    "BL-07: an update of a task that is %s is acknowledged and changes nothing",
    async (status) => {
      const id = await client.start({ completed: "quick", failed: "broken", cancelled: "long" }[status] ?? "", {
        label: "bl07",
      });
      if (status === "cancelled") await client.cancel(id);
      const ended = await client.until(id, status);
      const reply = await client.update(id, { name: take("x") });
      expect(reply.status).toBe(200);
      expect(reply.body.result?.resultType).toBe("complete");
      expect((await client.get(id)).body.result).toEqual(ended);
    },
  );

  test("BL-22: an answer that lacks a required field is acknowledged, the question stays open and says why", async () => {
    const id = await client.start("ask_one", { label: "bl22" });
    const [key = ""] = Object.keys(await asked(client, id));
    expect(
      (await client.update(id, { [key]: { action: "accept", content: { input: "Luca" } } })).body.error,
    ).toBeUndefined();
    const still = await client.untilTask(id, (task) => task.statusMessage !== undefined);
    expect(still.status).toBe("input_required");
    expect(still.statusMessage).toContain("value");
    expect(still.statusMessage).not.toContain("Luca");
    await client.update(id, { [key]: take("Luca") });
    expect(said((await client.until(id)).result)).toBe("Luca");
  });
});

describe("cancelling", () => {
  test("BL-08: cancelling a finished task twice is acknowledged and changes nothing", async () => {
    const id = await client.start("quick", { label: "bl08" });
    const ended = await client.until(id, "completed");
    for (const reply of [await client.cancel(id), await client.cancel(id)])
      expect([reply.status, reply.body.result?.resultType]).toEqual([200, "complete"]);
    expect((await client.get(id)).body.result).toEqual(ended);
  });

  test("BL-10: in a hundred races of cancel and answer, a task that says cancelled has not done its deed", async () => {
    const own = await bench([remove]);
    const wire = own.wire();
    const race = async (index: number) => {
      const name = `bl10-${index}`;
      const id = await wire.start("remove", { label: name });
      const [key = ""] = Object.keys(await asked(wire, id));
      const cancel = () => wire.cancel(id);
      const answer = () => wire.update(id, { [key]: { action: "accept", content: {} } });
      const [one, other] = index % 2 === 0 ? [cancel, answer] : [answer, cancel];
      await Promise.all([one(), pause(index % 6).then(other)]);
      const task = await wire.until(id);
      expect(task.inputRequests).toBeUndefined();
      return { name, status: task.status };
    };
    const ended: { name: string; status: string | undefined }[] = [];
    for (let round = 0; round < 10; round++)
      ended.push(...(await Promise.all(Array.from({ length: 10 }, (_, index) => race(round * 10 + index)))));
    await own[Symbol.asyncDispose]();
    for (const { name, status } of ended)
      expect([name, status, count(`${name} removed`)]).toEqual([name, status, status === "cancelled" ? 0 : 1]);
    expect(new Set(ended.map(({ status }) => status))).toContain("cancelled");
  });
});

describe("connections", () => {
  test("BL-11: destroying the connection after the handle came leaves the task running", async () => {
    const sent = rawPost(shared.url, rawRequest("tools/call", { name: "long", arguments: { label: "bl11" } }));
    const { promise, resolve } = Promise.withResolvers<string>();
    sent.on("response", (response) => {
      let body = "";
      response.on("error", () => {});
      response.on("data", (chunk: Buffer) => {
        body += chunk.toString();
        const [, found] = /"taskId":"([^"]+)"/.exec(body) ?? [];
        if (found !== undefined) resolve(found);
      });
    });
    const id = await promise;
    sent.destroy();
    await shared.tasks.send(id, "go", 1);
    await shared.tasks.send(id, "end", 1);
    expect(said((await client.until(id)).result)).toBe("bl11");
  });

  test("BL-11: over stdio, notifications/cancelled for the call that became a task cancels nothing", async () => {
    using files = folder();
    await using stdio = stdioWire(nodeArgs("fixture/main.ts", ["--stdio", "--db", files.file("tasks.db")]));
    const id = await stdio.start("slow_compute", { seconds: 0.3, label: "bl11" }, { id: "the-call" });
    stdio.notify("notifications/cancelled", { requestId: "the-call", reason: "gone" });
    expect((await stdio.until(id)).status).toBe("completed");
  });

  test("BL-12: of 500 calls that are cut off, each either never became a task or runs to its end", async () => {
    await using own = await bench([quick], { tasks: { liveTasksPerOwner: null } });
    const cut = async (index: number) => {
      const sent = rawPost(own.url, rawRequest("tools/call", { name: "quick", arguments: { label: `bl12-${index}` } }));
      const closed = new Promise<void>((resolve) => sent.on("close", resolve));
      sent.on("response", (response) => response.on("error", () => {}).resume());
      // However slow the machine: a fifth of them is cut off when the answer begins, and so has become a task.
      if (index % 5 === 0) sent.on("response", () => sent.destroy());
      else setTimeout(() => sent.destroy(), Math.random() * 20);
      await closed;
    };
    for (let round = 0; round < 10; round++)
      await Promise.all(Array.from({ length: 50 }, (_, index) => cut(round * 50 + index)));
    const rows = await until("no task is left working", async () => {
      const all = await own.store.list({ limit: 1_000 });
      return all.every(({ status }) => status === "completed") && all;
    });
    const ran = seen.filter((entry) => /^bl12-\d+ ran$/.test(entry));
    expect(rows.length).toBeGreaterThan(0);
    expect(ran).toHaveLength(rows.length);
    expect(new Set(ran).size).toBe(ran.length);
  });

  test("BL-22: over HTTP, a subscription that is open at shutdown gets its final answer and then ends", async () => {
    const own = await bench([long]);
    const wire = own.wire();
    const id = await wire.start("long", { label: "bl22" });
    const stream = await wire.listen([id], { id: "sub" });
    await stream.find(({ method }) => method === "notifications/tasks");
    const closed = own[Symbol.asyncDispose]();
    const last = await stream.find(({ result }) => result !== undefined);
    expect([last.id, last.result?.resultType]).toEqual(["sub", "complete"]);
    expect(await stream.next()).toBeUndefined();
    await closed;
  });

  test("BL-22: over stdio, an open subscription gets its final answer when the process is told to end", async () => {
    using files = folder();
    await using stdio = stdioWire(nodeArgs("fixture/main.ts", ["--stdio", "--db", files.file("tasks.db")]));
    const id = await stdio.start("confirm_delete", { filename: "bl22" });
    const stream = await stdio.listen([id], { id: "sub" });
    await stream.find(({ params }) => params?.status === "input_required");
    stdio.child.kill("SIGTERM");
    const last = await stream.find(({ result }) => result !== undefined);
    expect([last.id, last.result?.resultType]).toEqual(["sub", "complete"]);
    // Some clients wait for the one ending, some for the other.
    await stdio.close();
    const ends = stdio.lines.map((line) => JSON.parse(line) as { method?: string; params?: { requestId?: string } });
    expect(ends.some(({ method, params }) => method === "notifications/cancelled" && params?.requestId === "sub")).toBe(
      true,
    );
  });
});

describe("negotiation", () => {
  const undeclared = {
    "nothing is declared": { capabilities: {} },
    "only the tasks of 2025-11-25 are declared": { capabilities: { tasks: { requests: { tools: { call: {} } } } } },
    "it is declared beside the capabilities": { capabilities: {}, meta: { [tasksExtension]: {} } },
  };

  test.each(Object.entries(undeclared))(
    "BL-14: where %s, every task method is refused before the id is looked at",
    async (_, how) => {
      const known = await client.start("quick", { label: "bl14" });
      const refusals = async (id: string) => [
        await client.get(id, { ...how, id: 7 }),
        await client.update(id, {}, { ...how, id: 7 }),
        await client.cancel(id, { ...how, id: 7 }),
      ];
      const ofKnown = await refusals(known);
      for (const { status, body } of ofKnown) {
        expect([status, body.error?.code]).toEqual([400, -32021]);
        expect(body.error?.data).toEqual({ requiredCapabilities: { extensions: { [tasksExtension]: {} } } });
      }
      const plain = (reply: Reply) => [reply.status, reply.body];
      expect((await refusals("AAAAAAAAAAAAAAAAAAAAAA")).map(plain)).toEqual(ofKnown.map(plain));

      const stream = await client.listen([known], how);
      expect(stream.status).toBe(400);
      expect((await stream.next())?.error).toMatchObject({ code: -32021, data: ofKnown[0]?.body.error?.data });
      await client.until(known);
    },
  );

  test("BL-14: a declaration on one request does not carry over to the next", async () => {
    expect((await client.call("quick", { label: "bl14" })).body.result?.resultType).toBe("task");
    const { body } = await client.call("quick", { label: "bl14" }, { capabilities: {} });
    expect([body.result?.resultType, said(body.result)]).toEqual(["complete", "bl14"]);
  });

  test("BL-15: a legacy task parameter is ignored, and the legacy methods do not exist", async () => {
    const call = { name: "quick", arguments: { label: "bl15" }, task: { ttl: 1 } };
    const made = (await client.request("tools/call", call)).body.result;
    expect(made?.resultType).toBe("task");
    expect(made?.ttlMs).not.toBe(1);
    const inline = (await client.request("tools/call", call, { capabilities: {} })).body.result;
    expect([inline?.resultType, said(inline)]).toEqual(["complete", "bl15"]);
    for (const [method, params] of [
      ["tasks/list", {}],
      ["tasks/result", { taskId: made?.taskId }],
    ] as const) {
      const { status, body } = await client.request(method, params);
      expect([status, body.error?.code]).toEqual([404, -32601]);
    }
    const { capabilities } = (await client.request("server/discover")).body.result ?? {};
    expect(capabilities?.extensions).toHaveProperty([tasksExtension]);
    expect(capabilities).not.toHaveProperty("tasks");
  });

  test("BL-16: a question before the task is asked on the call, and never stored as a result", async () => {
    const first = (await client.call("before")).body.result;
    expect(first?.resultType).toBe("input_required");
    const [key = "", question] = Object.entries(first?.inputRequests ?? {})[0] ?? [];
    const retry = {
      name: "before",
      arguments: {},
      inputResponses: { [key]: accept(question, { value: "Ada" }) },
      requestState: first?.requestState,
    };
    const second = (await client.request("tools/call", retry)).body.result;
    expect(second?.resultType).toBe("task");
    const ended = await client.until(second?.taskId ?? "");
    expect(ended.result?.resultType).toBe("complete");
    expect(said(ended.result)).toBe("for Ada");
  });

  test("BL-24: of a caller that declared no question none is ever shown to it, and another of its owner may answer", async () => {
    const { elicitation: _, ...others } = everything;
    const id = await client.start("ask_one", { label: "bl24" }, { capabilities: others });
    await client.until(id, "input_required");
    const { result } = (await client.get(id, { capabilities: others })).body;
    expect(result).toMatchObject({ status: "working", statusMessage: expect.stringContaining("did not declare") });
    expect(result).not.toHaveProperty("inputRequests");
    await client.update(id, { name: { action: "accept", content: { value: "bl24" } } });
    expect(await client.until(id)).toMatchObject({ status: "completed" });
  });

  test("BL-24: what the reader declared governs, not what the creator did", async () => {
    const { elicitation: _, ...others } = everything;
    const id = await client.start("ask_one", { label: "bl24" });
    await client.until(id, "input_required");
    expect((await client.get(id, { capabilities: others })).body.result).not.toHaveProperty("inputRequests");
    expect((await client.get(id)).body.result?.inputRequests).toHaveProperty("name");
    await client.cancel(id);
  });

  test("BL-24: a tool that only its caller may answer fails for one that can't be asked", async () => {
    const onlyCaller = taskTool({
      name: "only_caller",
      task: { input: "caller" },
      run: async (_args, task) => text(await task.elicit("who", { message: "?", schema: z.object({ a: z.string() }) })),
    });
    await using own = await bench([onlyCaller]);
    const { elicitation: _, ...others } = everything;
    const id = await own.wire().start("only_caller", {}, { capabilities: others });
    expect(await own.wire().until(id)).toMatchObject({
      status: "failed",
      error: { code: -32021, data: { requiredCapabilities: { elicitation: { form: {} } } } },
    });
  });

  test("BL-24: tools are not offered to a model whose client did not declare sampling with tools", async () => {
    const sampler = taskTool({
      name: "sampler",
      async run(_args, task) {
        const tools = [{ name: "t", inputSchema: { type: "object" as const } }];
        await task.sample("think", { messages: [], maxTokens: 10, tools });
        return text("no");
      },
    });
    await using own = await bench([sampler]);
    const wire = own.wire();
    const id = await wire.start("sampler", {}, { capabilities: { ...everything, sampling: {} } });
    expect((await wire.until(id, "input_required")).inputRequests?.think?.method).toBe("sampling/createMessage");
    const { result } = (await wire.get(id, { capabilities: { ...everything, sampling: {} } })).body;
    expect(result).toMatchObject({ status: "working" });
    expect(result).not.toHaveProperty("inputRequests");
  });
});
