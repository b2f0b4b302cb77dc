import { Client } from "@modelcontextprotocol/client";
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
  type ApplicationElicitResult,
  type ApplicationInputRequest,
  type SerializedTaskReference,
  type TaskEnabledSession,
  type TaskOutcome,
} from "@modelcontextprotocol/ext-tasks/client";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { channels, httpServer, openTransport } from "./channels.ts";
import { filledIn } from "./forms.ts";
import { rawDispatch } from "./raw-dispatch.ts";

/** What one call has to do with its questions: the session hands it back with each of them. */
interface Person {
  readonly asked: ApplicationInputRequest[];
  answer(form: unknown): ApplicationElicitResult;
}
type Session = TaskEnabledSession<Person>;

const extension = "io.modelcontextprotocol/tasks";
const protocolVersion = "2026-07-28";
const clientInfo = { name: "official-tasks-client", version: "1.0.0" };
const clientCapabilities = { elicitation: { form: {} }, extensions: { [extension]: {} } };

const url = httpServer();

function person(answer: Person["answer"] = filledIn): Person {
  return { asked: [], answer };
}

const onInputRequest = createApplicationInputHandler<Person>({
  elicitation(request, { applicationContext }) {
    applicationContext.asked.push(request);
    return applicationContext.answer(request.params);
  },
  sampling: () => Promise.reject(new Error("the fixture asks people only")),
  roots: () => Promise.reject(new Error("the fixture asks people only")),
});

describe.each(channels)("the official Tasks client over %s", (channel) => {
  let client: Client;
  let session: Session;

  beforeAll(async () => {
    const transport = openTransport(channel, url());
    const versionNegotiation = { mode: { pin: protocolVersion } };
    client = new Client(clientInfo, { capabilities: clientCapabilities, versionNegotiation });
    await client.connect(transport);
    session = createTaskSessionFromClient<Person>(client, {
      endpointId: "fixture",
      rawDispatch: rawDispatch(transport),
      v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities },
      onInputRequest,
    });
  });
  afterAll(async () => {
    await session.close();
    await client.close();
  });

  test("finds the extension when it connects", () => {
    expect(client.getServerCapabilities()?.extensions).toHaveProperty([extension], {});
    expect(session.capabilities).toEqual({
      inventory: "known-handles",
      execution: true,
      cancellation: true,
      inputResponses: true,
      requestedRetention: false,
    });
  });

  test("gets the result of a plain tool at once", async () => {
    const execution = await session.callTool("greet", { name: "Ada" }, { applicationContext: person() });
    expect(execution.kind).toBe("immediate");
    expect(resultOf(await execution.result())).toMatchObject({ content: [{ type: "text", text: "Hello, Ada!" }] });
  });

  test("follows a task to its result", async () => {
    const execution = await session.callTool("slow_compute", { seconds: 1, label: "sum" });
    expect(execution.kind).toBe("task");
    const states: string[] = [];
    const { outcome, lastTask } = await execution.settle({
      onEvent: (event) => void (event.type === "task" && states.push(event.task.status)),
    });
    expect(resultOf(outcome)).toEqual({
      resultType: "complete",
      content: [{ type: "text", text: "Computed sum in 1 s" }],
    });
    expect(lastTask?.status).toBe("completed");
    expect(states.at(0)).toBe("working");
  });

  test("answers the one question of a task", async () => {
    const ada = person();
    const execution = await session.callTool("confirm_delete", { filename: "a.txt" }, { applicationContext: ada });
    expect(resultOf(await execution.result()).content).toEqual([{ type: "text", text: "Deleted a.txt" }]);
    expect(ada.asked).toHaveLength(1);
    expect(ada.asked[0]).toMatchObject({ kind: "elicitation", params: { mode: "form" } });
  });

  test("declines a question of a task", async () => {
    const bob = person(() => ({ action: "decline" }));
    const execution = await session.callTool("confirm_delete", { filename: "a.txt" }, { applicationContext: bob });
    expect(resultOf(await execution.result()).content).toEqual([{ type: "text", text: "Kept a.txt" }]);
  });

  test("answers two questions that are asked at once, each of them once", async () => {
    const ada = person();
    const execution = await session.callTool("multi_input", {}, { applicationContext: ada });
    expect(resultOf(await execution.result()).content).toEqual([{ type: "text", text: "Ada is sure" }]);
    expect(ada.asked).toHaveLength(2);
  });

  test("answers a question before the task, which then gives the result", async () => {
    const ada = person();
    const execution = await session.callTool("test_tool_with_task", {}, { applicationContext: ada });
    expect(execution.kind).toBe("task");
    expect(resultOf(await execution.result()).content).toEqual([{ type: "text", text: "Hello, Ada!" }]);
    expect(ada.asked).toHaveLength(1);
  });

  test("gets a tool's own error as a result", async () => {
    const execution = await session.callTool("failing_job", {});
    expect(execution.kind).toBe("task");
    expect(resultOf(await execution.result())).toEqual({
      resultType: "complete",
      content: [{ type: "text", text: "The job failed, as it always does" }],
      isError: true,
    });
  });

  test("gets a protocol error as a failed task, code and message included", async () => {
    const execution = await session.callTool("protocol_error_job", {});
    expect(await execution.result()).toMatchObject({
      status: "failed",
      error: { code: -32603, message: "The job broke, as it always does" },
    });
  });

  test("cancels a task", async () => {
    const execution = await session.callTool("slow_compute", { seconds: 30, label: "long" });
    const { taskId } = execution.handle!;
    await execution.cancel();
    expect(await execution.result()).toMatchObject({ status: "cancelled" });
    const status = async () => (await session.task(taskId).snapshot()).status;
    await vi.waitFor(async () => expect(await status()).toBe("cancelled"), { timeout: 5_000, interval: 50 });
  });

  test("is told that a task does not exist", async () => {
    await expect(session.task("no-such-task" as never).snapshot()).rejects.toMatchObject({ code: -32602 });
  });

  test("goes on with a task that it let go of", async () => {
    const execution = await session.callTool("slow_compute", { seconds: 1, label: "kept" });
    if (execution.kind !== "task") throw new Error("no task came");
    let saved: SerializedTaskReference | undefined;
    await execution.handoff((reference) => void (saved = structuredClone(reference)));
    // The session gives up its hold on the task in a later turn.
    const resumed = await vi.waitFor(() => session.resumeTask(saved!), { interval: 10 });
    expect(resultOf(await resumed.result()).content).toEqual([{ type: "text", text: "Computed kept in 1 s" }]);
  });
});

/** The result of a task that completed; anything else fails the test with what came instead. */
function resultOf<T>(outcome: TaskOutcome<T>): T {
  if (outcome.status !== "completed") throw new Error(`no result: ${JSON.stringify(outcome)}`, { cause: outcome });
  return outcome.result;
}
