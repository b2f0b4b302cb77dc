import { Client, type ElicitRequestFormParams } from "@modelcontextprotocol/client";
import { TaskClient } from "mcp-tasks/client";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { channels, httpServer, openTransport } from "./channels.ts";
import { filledIn } from "./forms.ts";

const url = httpServer();

describe.each(channels)("our own client over %s", (channel) => {
  const asked: ElicitRequestFormParams[] = [];
  const problems: unknown[] = [];
  let answer: (form: ElicitRequestFormParams) => ReturnType<typeof filledIn> | { action: "decline" };
  let tasks: TaskClient;

  beforeAll(async () => {
    tasks = new TaskClient(new Client({ name: "our-client", version: "1.0.0" }), {
      input: {
        elicit(form) {
          asked.push(form);
          return answer(form);
        },
      },
      onError: (problem) => problems.push(problem),
    });
    await tasks.connect(openTransport(channel, url()));
  });
  beforeEach(() => {
    asked.length = 0;
    answer = filledIn;
  });
  afterAll(async () => {
    await tasks.close();
    expect(problems).toEqual([]);
  });

  test("gets the result of a plain tool at once", async () => {
    const run = await tasks.start({ name: "greet", arguments: { name: "Ada" } });
    expect(run.taskId).toBeUndefined();
    expect(await run.result()).toMatchObject({ content: [{ type: "text", text: "Hello, Ada!" }] });
  });

  test("follows a task to its result", async () => {
    const states: string[] = [];
    const run = await tasks.start({ name: "slow_compute", arguments: { seconds: 1, label: "sum" } });
    for await (const { status } of run) states.push(status);
    expect(states).toEqual(["working", "completed"]);
    expect(await run.result()).toEqual({ content: [{ type: "text", text: "Computed sum in 1 s" }] });
  });

  test("answers the one question of a task", async () => {
    const result = await tasks.callTool({ name: "confirm_delete", arguments: { filename: "a.txt" } });
    expect(result).toEqual({ content: [{ type: "text", text: "Deleted a.txt" }] });
    expect(asked).toMatchObject([{ mode: "form", message: "Delete a.txt?" }]);
  });

  test("declines a question of a task", async () => {
    answer = () => ({ action: "decline" });
    const result = await tasks.callTool({ name: "confirm_delete", arguments: { filename: "a.txt" } });
    expect(result).toEqual({ content: [{ type: "text", text: "Kept a.txt" }] });
  });

  test("answers two questions that are asked at once, each of them once", async () => {
    const result = await tasks.callTool({ name: "multi_input" });
    expect(result).toEqual({ content: [{ type: "text", text: "Ada is sure" }] });
    expect(asked.map(({ message }) => message).toSorted()).toEqual(["Are you sure?", "Who are you?"]);
  });

  test("answers two questions that are asked one after the other", async () => {
    const result = await tasks.callTool({ name: "ask_twice" });
    expect(result).toEqual({ content: [{ type: "text", text: "first=Ada second=Ada" }] });
    expect(asked.map(({ message }) => message)).toEqual(["The first value?", "The second value?"]);
  });

  test("answers a question before the task, which then gives the result", async () => {
    const run = await tasks.start({ name: "test_tool_with_task" });
    expect(run.taskId).toEqual(expect.any(String));
    expect(await run.result()).toEqual({ content: [{ type: "text", text: "Hello, Ada!" }] });
    expect(asked).toMatchObject([{ message: "What is your name?" }]);
  });

  test("gets a tool's own error as a result", async () => {
    expect(await tasks.callTool({ name: "failing_job" })).toEqual({
      content: [{ type: "text", text: "The job failed, as it always does" }],
      isError: true,
    });
  });

  test("gets a protocol error as it was thrown", async () => {
    await expect(tasks.callTool({ name: "protocol_error_job" })).rejects.toMatchObject({
      code: "TASK_FAILED",
      rpc: -32603,
      message: "The job broke, as it always does",
    });
  });

  test("cancels a task", async () => {
    const run = await tasks.start({ name: "slow_compute", arguments: { seconds: 30, label: "long" } });
    await run.cancel();
    await expect(run.result()).rejects.toMatchObject({ code: "CANCELLED" });
    // What the server made of it, seen by somebody who did not cancel.
    await expect(tasks.resume(run.taskId!).result()).rejects.toMatchObject({ code: "CANCELLED" });
  });

  test("is told that a task does not exist", async () => {
    await expect(tasks.resume("no-such-task").result()).rejects.toMatchObject({ code: "TASK_NOT_FOUND", rpc: -32602 });
  });

  test("goes on with a task that it let go of", async () => {
    const run = await tasks.start({ name: "slow_compute", arguments: { seconds: 1, label: "kept" } });
    run.detach();
    await expect(run.result()).rejects.toMatchObject({ code: "DETACHED" });
    const result = await tasks.resume(run.taskId!).result();
    expect(result).toEqual({ content: [{ type: "text", text: "Computed kept in 1 s" }] });
  });
});
