import type { ServerResponse } from "node:http";
import { SUBSCRIPTION_ID_META_KEY } from "@modelcontextprotocol/client";
import { expect, test, vi } from "vitest";
import { type Reply, type Seen, fakeServer } from "./fake-http.ts";
import { connected } from "./setup.ts";
import { ack, asking, completed, created, form, text, working } from "./wire.ts";

/** The subscription streams that a scripted server has open. */
class Streams {
  readonly open: { response: ServerResponse; id: unknown; taskIds: string[] }[] = [];
  asked: string[][] = [];

  /** Accepts a `subscriptions/listen` and acknowledges `honoured`, by default all that was asked for. */
  accept({ id, params }: Seen, { raw }: Reply, honoured: string[] | undefined = params.notifications.taskIds): void {
    raw.writeHead(200, { "content-type": "text/event-stream" });
    const stream = { response: raw, id, taskIds: params.notifications.taskIds as string[] };
    raw.on("close", () => this.open.splice(this.open.indexOf(stream), 1));
    this.open.push(stream);
    this.asked.push(stream.taskIds);
    this.write(stream, "notifications/subscriptions/acknowledged", { notifications: { taskIds: honoured } });
  }

  write(stream: { response: ServerResponse; id: unknown }, method: string, params: object): void {
    const message = { jsonrpc: "2.0", method, params: { ...params, _meta: { [SUBSCRIPTION_ID_META_KEY]: stream.id } } };
    stream.response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
  }

  /** Tells a task's state on every stream that reports it, as `tasks/get` would, less the resultType. */
  tell(state: Record<string, unknown>): void {
    const { resultType: _, ...task } = state;
    for (const stream of this.open) {
      if (stream.taskIds.includes(String(task.taskId))) this.write(stream, "notifications/tasks", task);
    }
  }
}

const slow = { pollIntervalMs: 60_000 };

test("changes that are pushed are taken as they come, with one reading after the acknowledgement", async () => {
  const streams = new Streams();
  await using server = await fakeServer((seen, reply) => {
    if (seen.method === "tools/call") reply.result(created(slow));
    else if (seen.method === "subscriptions/listen") streams.accept(seen, reply);
    else if (seen.method === "tasks/get") reply.result(working(slow));
    else {
      reply.result(ack);
      streams.tell(completed("pushed"));
    }
  });
  const tasks = await connected(server, {
    listen: true,
    input: { elicit: () => ({ action: "accept", content: { name: "Ada" } }) },
  });
  const statuses: string[] = [];
  const result = tasks.callTool({ name: "x" }, { onUpdate: ({ status }) => statuses.push(status) });
  await vi.waitFor(() => expect(server.of("tasks/get")).toHaveLength(1));
  await vi.waitFor(() => expect(streams.open).toHaveLength(1));
  streams.open[0]!.response.write(": still here\n\n");
  streams.tell(asking({ who: form("Who?") }));
  streams.tell(asking({ who: form("Who?") }));
  expect(await result).toEqual(text("pushed"));
  expect(server.of("tasks/get")).toHaveLength(1);
  expect(server.of("tasks/update")).toHaveLength(1);
  expect(statuses.filter((status, at) => status !== statuses[at - 1])).toEqual([
    "working",
    "input_required",
    "completed",
  ]);
  expect(server.of("subscriptions/listen")[0]!.params.notifications).toEqual({ taskIds: ["task-1"] });
  // The last one to leave closes the stream.
  await vi.waitFor(() => expect(streams.open).toHaveLength(0));
  await tasks.close();
});

test("a server that acknowledges and then says nothing is read once after the acknowledgement", async () => {
  const streams = new Streams();
  await using server = await fakeServer((seen, reply) => {
    if (seen.method === "tools/call") reply.result(created(slow));
    else if (seen.method === "subscriptions/listen") streams.accept(seen, reply);
    else reply.result(completed("between"));
  });
  const tasks = await connected(server, { listen: true });
  expect(await tasks.callTool({ name: "x" })).toEqual(text("between"));
  expect(server.of("tasks/get")).toHaveLength(1);
  await tasks.close();
});

test("many tasks share one stream", async () => {
  const streams = new Streams();
  let ids = 0;
  await using server = await fakeServer((seen, reply) => {
    if (seen.method === "tools/call") reply.result(created({ ...slow, taskId: `task-${(ids += 1)}` }));
    else if (seen.method === "subscriptions/listen") streams.accept(seen, reply);
    else reply.result(working({ ...slow, taskId: seen.params.taskId }));
  });
  const tasks = await connected(server, { listen: true });
  const results = Array.from({ length: 20 }, () => tasks.callTool({ name: "x" }));
  await vi.waitFor(() => expect(streams.asked.at(-1)).toHaveLength(20));
  results.push(tasks.callTool({ name: "one more" }));
  await vi.waitFor(() => expect(streams.asked.at(-1)).toHaveLength(21));
  await vi.waitFor(() => expect(streams.open).toHaveLength(1));
  expect(streams.asked.length).toBeLessThan(5);
  // One reading each after the first acknowledgement; what was on the old stream missed nothing on the new one.
  await vi.waitFor(() => expect(server.of("tasks/get")).toHaveLength(21));
  for (let id = 1; id <= 21; id += 1) streams.tell(completed(`result ${id}`, { taskId: `task-${id}` }));
  expect(new Set((await Promise.all(results)).map((result) => JSON.stringify(result))).size).toBe(21);
  await tasks.close();
});

test("what happened while the stream was down is read after the reconnect", async () => {
  const streams = new Streams();
  let down = false;
  await using server = await fakeServer((seen, reply) => {
    if (seen.method === "tools/call") reply.result(created(slow));
    else if (seen.method === "subscriptions/listen") streams.accept(seen, reply);
    else reply.result(down ? completed("missed") : working(slow));
  });
  const tasks = await connected(server, { listen: true });
  const result = tasks.callTool({ name: "x" });
  await vi.waitFor(() => expect(server.of("tasks/get")).toHaveLength(1));
  await vi.waitFor(() => expect(streams.open).toHaveLength(1));
  down = true;
  streams.open[0]!.response.destroy();
  expect(await result).toEqual(text("missed"));
  await tasks.close();
});

test.each<[string, (seen: Seen, reply: Reply) => void]>([
  ["doesn't know the method", (_, reply) => reply.error(-32601, "Method not found")],
  ["answers 404", (_, reply) => reply.status(404)],
  ["reports none of the tasks", (seen, reply) => new Streams().accept(seen, reply, [])],
])("a server that %s is polled, and not asked again", async (_, refuse) => {
  let polls = 0;
  await using server = await fakeServer((seen, reply) => {
    if (seen.method === "tools/call") reply.result(created());
    else if (seen.method === "subscriptions/listen") refuse(seen, reply);
    else reply.result((polls += 1) < 8 ? working() : completed("polled"));
  });
  const tasks = await connected(server, { listen: true });
  expect(await tasks.callTool({ name: "x" })).toEqual(text("polled"));
  expect(server.of("subscriptions/listen")).toHaveLength(1);
  await tasks.close();
});

test("a server that does not advertise the extension is not asked to push", async () => {
  await using server = await fakeServer(
    (seen, reply) => reply.result(seen.method === "tools/call" ? created() : completed()),
    {},
  );
  const tasks = await connected(server, { listen: true });
  await tasks.callTool({ name: "x" });
  expect(server.of("subscriptions/listen")).toHaveLength(0);
  await tasks.close();
});

test("a push that is older than what was read, or that makes no sense, changes nothing", async () => {
  const streams = new Streams();
  let polls = 0;
  await using server = await fakeServer((seen, reply) => {
    if (seen.method === "tools/call") return reply.result(created());
    if (seen.method === "subscriptions/listen") return streams.accept(seen, reply);
    polls += 1;
    reply.result(
      polls === 1 ? working({ statusMessage: "new", lastUpdatedAt: "2026-08-09T00:00:00.000Z" }) : completed(),
    );
  });
  const errors: unknown[] = [];
  const tasks = await connected(server, { listen: true, onError: (error) => errors.push(error) });
  const messages: (string | undefined)[] = [];
  const run = await tasks.start({ name: "x" }, { onUpdate: ({ statusMessage }) => messages.push(statusMessage) });
  await vi.waitFor(() => expect(messages).toContain("new"));
  await vi.waitFor(() => expect(streams.open).toHaveLength(1));
  streams.tell(working({ statusMessage: "old", lastUpdatedAt: "2026-08-08T00:00:00.000Z" }));
  streams.tell({ taskId: "task-1", status: "dancing" });
  await vi.waitFor(() => expect(errors).toHaveLength(1));
  streams.tell(completed("end", { lastUpdatedAt: "2026-08-10T00:00:00.000Z" }));
  expect(await run.result()).toEqual(text("end"));
  expect(messages).toEqual([undefined, "new", undefined]);
  await tasks.close();
});
