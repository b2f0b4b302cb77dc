import { join } from "node:path";
import { describe, expect } from "vitest";
import { startFixture } from "../fixture/start.ts";
import { wire as connect, type Fields, type Frames, type Message } from "../wire/client.ts";
import { elicitations, open, stdioFixture, temporaryFolder, unknownId } from "./harness.ts";
import { verifies } from "./verifies.ts";

const folder = temporaryFolder();
const { http, stdio } = await open(["--poll", "100"]);
const transports = [
  ["HTTP", http],
  ["stdio", stdio],
] as const;
const subscription = "io.modelcontextprotocol/subscriptionId";
const acknowledged = "notifications/subscriptions/acknowledged";

const acknowledgedIds = (message: Message | undefined) => message?.params?.notifications?.taskIds;
const bare = ({ resultType, _meta, ...task }: Fields) => task;
const isTask = (taskId: string, status: string) => (message: Message) =>
  message.method === "notifications/tasks" && message.params?.taskId === taskId && message.params.status === status;

/** Reads a subscription to its end. */
async function rest(stream: Frames): Promise<readonly Message[]> {
  while ((await stream.next()) !== undefined);
  return stream.seen;
}

describe.each(transports)("listening over %s", (_name, wire) => {
  verifies("listen:ack-subset", "the first message names the tasks that exist, once each", async () => {
    const taskId = await wire.start("confirm_delete", { filename: "x" });
    const stream = await wire.listen([unknownId, taskId, "nonsense", taskId]);
    const first = await stream.next();
    expect(first?.method).toBe(acknowledged);
    expect(acknowledgedIds(first)).toEqual([taskId]);
    await stream.close();
    for (const ids of [[], [unknownId]]) {
      const nothing = await rest(await wire.listen(ids));
      expect(nothing.map(({ method, result }) => method ?? result?.resultType)).toEqual([acknowledged, "complete"]);
      expect(acknowledgedIds(nothing[0])).toEqual([]);
    }
  });

  verifies(
    ["listen:no-gap", "listen:graceful"],
    "a finished task is told at once, and then the stream ends",
    async () => {
      const taskId = await wire.start("slow_compute", { seconds: 0, label: "x" });
      const ended = await wire.until(taskId);
      const [ack, state, end, ...more] = await rest(await wire.listen([taskId]));
      expect(acknowledgedIds(ack)).toEqual([taskId]);
      expect(bare(state?.params ?? {})).toEqual(bare(ended));
      expect(end?.result?.resultType).toBe("complete");
      expect(more).toEqual([]);
    },
  );

  verifies("listen:no-gap", "whenever a subscription begins, it sees the task end", async () => {
    const runs = Array.from({ length: 25 }, async (_, i) => {
      const taskId = await wire.start("slow_compute", { seconds: 0.002 * i, label: "x" });
      const stream = await wire.listen([taskId]);
      const ended = await stream.find(isTask(taskId, "completed"));
      expect(bare(ended.params ?? {})).toEqual(bare((await wire.get(taskId)).body.result ?? {}));
      const states = (await rest(stream)).filter(({ method }) => method === "notifications/tasks");
      expect(states.at(-1)?.params?.status).toBe("completed");
    });
    await Promise.all(runs);
  });

  verifies("listen:only-asked", "a subscription tells of its own tasks and of nothing else", async () => {
    const asked = await wire.start("slow_compute", { seconds: 0.4, label: "asked" });
    const other = await wire.start("slow_compute", { seconds: 0.1, label: "other" });
    const stream = await wire.listen([asked]);
    await wire.until(other);
    for (const { method, params } of (await rest(stream)).slice(1, -1)) {
      expect(method).toBe("notifications/tasks");
      expect(params?.taskId).toBe(asked);
    }
  });

  verifies("listen:subscription-id", "every message carries the id of its request, with its type", async () => {
    const taskId = await wire.start("slow_compute", { seconds: 0.2, label: "x" });
    const streams = await Promise.all([4711, "4712", "a b"].map((id) => wire.listen([taskId], { id })));
    for (const stream of streams) {
      const messages = await rest(stream);
      expect(messages.length).toBeGreaterThanOrEqual(3);
      for (const { params, result } of messages) expect((params ?? result)?._meta?.[subscription]).toBe(stream.id);
      expect(messages.at(-1)?.id).toBe(stream.id);
    }
  });

  verifies("listen:full-task", "each notification is what a read would give at that moment", async () => {
    const taskId = await wire.start("multi_input");
    const waiting = await wire.until(taskId, "input_required");
    const stream = await wire.listen([taskId]);
    const same = async (status: string) => {
      const { params = {} } = await stream.find(isTask(taskId, status));
      expect(params).not.toHaveProperty("resultType");
      const read = (await wire.get(taskId)).body.result ?? {};
      expect(bare(params)).toEqual(bare(read));
      return params;
    };
    expect((await same("input_required")).inputRequests).toEqual(waiting.inputRequests);
    const [one, two] = elicitations(waiting.inputRequests);
    await wire.update(taskId, { [one!.key]: one!.accept("Ada") });
    expect(Object.keys((await same("input_required")).inputRequests ?? {})).toEqual([two!.key]);
    await wire.update(taskId, { [two!.key]: two!.accept("Ada") });
    expect((await same("completed")).result?.content?.[0]?.type).toBe("text");
    for (const tool of ["protocol_error_job", "failing_job"]) {
      const id = await wire.start(tool);
      const ended = await wire.until(id);
      const [, told] = await rest(await wire.listen([id]));
      expect(bare(told?.params ?? {})).toEqual(bare(ended));
    }
  });

  verifies("listen:no-progress", "a task has no progress and no log on any stream", async () => {
    const meta = { progressToken: "p", "io.modelcontextprotocol/logLevel": "debug" };
    const reply = await wire.call("slow_compute", { seconds: 0.2, label: "x" }, { meta });
    const unwanted = ["notifications/progress", "notifications/message"];
    expect(reply.before.filter(({ method = "" }) => unwanted.includes(method))).toEqual([]);
    const taskId = reply.body.result?.taskId ?? "";
    const messages = await rest(await wire.listen([taskId], { meta }));
    const methods = new Set(messages.map(({ method }) => method ?? "the answer"));
    expect([...methods]).toEqual([acknowledged, "notifications/tasks", "the answer"]);
  });

  verifies("listen:only-asked", "who listens for something else hears of no task", async () => {
    const taskId = await wire.start("slow_compute", { seconds: 0.2, label: "x" });
    const stream = await wire.listen({ toolsListChanged: true });
    const all = rest(stream);
    await wire.until(taskId);
    await stream.close();
    const [first, ...others] = await all;
    expect(first?.method).toBe(acknowledged);
    expect(acknowledgedIds(first)).toBeUndefined();
    expect(others.filter(({ method }) => method === "notifications/tasks")).toEqual([]);
  });
});

verifies("listen:no-progress", "nothing but answers comes over stdio while tasks run", async () => {
  await using alone = stdioFixture(["--db", join(folder, "progress.db")]);
  const meta = { progressToken: 1 };
  await alone.until(await alone.start("slow_compute", { seconds: 0.1, label: "x" }, { meta }));
  await alone.until(await alone.start("steps", { n: 3, ms: 10 }, { meta }));
  expect(alone.lines.filter((line) => "method" in (JSON.parse(line) as object))).toEqual([]);
});

verifies("listen:graceful", "a server that goes ends its streams with an answer", async () => {
  await using server = await startFixture([]);
  const wire = connect(server.url);
  const taskId = await wire.start("confirm_delete", { filename: "x" });
  await wire.until(taskId, "input_required");
  const streams = await Promise.all([wire.listen([taskId]), wire.listen([taskId], { id: "second" })]);
  for (const stream of streams) await stream.find(isTask(taskId, "input_required"));
  const exit = server.stop("SIGTERM");
  for (const stream of streams) {
    const last = (await rest(stream)).at(-1);
    expect(last).toMatchObject({
      id: stream.id,
      result: { resultType: "complete", _meta: { [subscription]: stream.id } },
    });
  }
  expect(await exit).toEqual({ code: 0, signal: null });
});
