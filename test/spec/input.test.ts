import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect } from "vitest";
import type { Wire } from "../wire/client.ts";
import { elicitations, open, temporaryFolder, unknownId } from "./harness.ts";
import { verifies } from "./verifies.ts";

const folder = temporaryFolder();
const { http, stdio } = await open([]);
const transports = [
  ["HTTP", http],
  ["stdio", stdio],
] as const;
const empty = { resultType: "complete" };

const accept = (content: object) => ({ action: "accept", content });

/** A task that waits for its only question. */
async function asking(wire: Wire, tool = "confirm_delete", args: Record<string, unknown> = {}) {
  const taskId = await wire.start(tool, args);
  const task = await wire.until(taskId, "input_required");
  return { taskId, task, questions: elicitations(task.inputRequests) };
}

async function acknowledged(wire: Wire, taskId: string, responses: unknown): Promise<void> {
  const { body } = await wire.update(taskId, responses);
  const { _meta, ...result } = body.result ?? {};
  expect(body.error).toBeUndefined();
  expect(result).toEqual(empty);
}

describe.each(transports)("input over %s", (name, wire) => {
  verifies("input:ack-empty", "an update is acknowledged, and its answer reaches the handler", async () => {
    for (const [confirm, text] of [
      [true, "Deleted a.txt"],
      [false, "Kept a.txt"],
    ] as const) {
      const { taskId, questions } = await asking(wire, "confirm_delete", { filename: "a.txt" });
      await acknowledged(wire, taskId, { [questions[0]!.key]: accept({ confirm }) });
      const ended = await wire.until(taskId);
      expect(ended.result?.content).toEqual([{ type: "text", text }]);
    }
  });

  verifies("input:keys-unique", "a key stands for one request, from its first showing to the end", async () => {
    const path = join(folder, `${name}-keys`);
    const taskId = await wire.start("ask_twice", { path });
    const shown = new Map<string, string>();
    const order: string[] = [];
    for (const value of ["one", "two"]) {
      const { inputRequests = {} } = await wire.untilTask(taskId, ({ inputRequests = {} }) =>
        Object.keys(inputRequests).some((key) => !shown.has(key)),
      );
      for (let i = 0; i < 5; i++) expect((await wire.get(taskId)).body.result?.inputRequests).toEqual(inputRequests);
      const [question, ...others] = elicitations(inputRequests);
      expect(others).toEqual([]);
      expect(shown.has(question!.key)).toBe(false);
      shown.set(question!.key, question!.message);
      order.push(question!.key);
      await acknowledged(wire, taskId, { [question!.key]: question!.accept(value) });
    }
    expect((await wire.until(taskId)).result?.content).toEqual([{ type: "text", text: "first=one second=two" }]);
    expect([...shown.values()]).toEqual(["The first value?", "The second value?"]);
    expect(new Set(order).size).toBe(2);
    expect(readFileSync(path, "utf8").trim().split("\n")).toEqual(["before", "mid", "after"]);
  });

  verifies("input:unknown-key", "answers to what is not asked change nothing", async () => {
    const path = join(folder, `${name}-late`);
    const { taskId, task, questions } = await asking(wire, "ask_twice", { path });
    const [first] = questions;
    await acknowledged(wire, taskId, { never: first!.accept("x"), __proto__: first!.accept("x"), constructor: 7 });
    await acknowledged(wire, taskId, {});
    const still = (await wire.get(taskId)).body.result;
    expect({ ...still, pollIntervalMs: 0 }).toEqual({ ...task, pollIntervalMs: 0 });

    await acknowledged(wire, taskId, { [first!.key]: first!.accept("first") });
    const next = await wire.untilTask(
      taskId,
      ({ inputRequests = {} }) =>
        elicitations(inputRequests)[0]?.key !== first!.key && Object.keys(inputRequests).length === 1,
    );
    await acknowledged(wire, taskId, { [first!.key]: first!.accept("late") });
    expect((await wire.get(taskId)).body.result?.inputRequests).toEqual(next.inputRequests);
    const [second] = elicitations(next.inputRequests);
    await acknowledged(wire, taskId, { [second!.key]: second!.accept("second") });
    const ended = await wire.until(taskId);
    expect(ended.result?.content?.[0]?.text).toBe("first=first second=second");
    await acknowledged(wire, taskId, { [second!.key]: second!.accept("later") });
    expect((await wire.get(taskId)).body.result).toEqual(ended);
  });

  verifies("input:unknown-key", "of many answers to one request, one is taken and the rest ignored", async () => {
    const path = join(folder, `${name}-race`);
    const { taskId, questions } = await asking(wire, "ask_twice", { path });
    const values = Array.from({ length: 20 }, (_, i) => `v${i}`);
    await Promise.all(
      values.map((value) => acknowledged(wire, taskId, { [questions[0]!.key]: questions[0]!.accept(value) })),
    );
    const next = await wire.untilTask(
      taskId,
      ({ inputRequests }) => elicitations(inputRequests)[0]?.message === "The second value?",
    );
    const [second] = elicitations(next.inputRequests);
    await acknowledged(wire, taskId, { [second!.key]: second!.accept("end") });
    const text = (await wire.until(taskId)).result?.content?.[0]?.text ?? "";
    expect(values.map((value) => `first=${value} second=end`)).toContain(text);
    expect(readFileSync(path, "utf8").trim().split("\n")).toEqual(["before", "mid", "after"]);
  });

  verifies("input:partial", "one of two answers leaves the other open and the task waiting", async () => {
    const { taskId, task, questions } = await asking(wire, "multi_input");
    const confirm = questions.find(({ message }) => message === "Are you sure?")!;
    const who = questions.find(({ message }) => message === "Who are you?")!;
    await acknowledged(wire, taskId, { [confirm.key]: accept({ confirm: false }), other: accept({}) });
    const partly = await wire.untilTask(taskId, ({ inputRequests = {} }) => Object.keys(inputRequests).length < 2);
    expect(partly).toMatchObject({
      status: "input_required",
      inputRequests: { [who.key]: task.inputRequests?.[who.key] },
    });
    await acknowledged(wire, taskId, { [who.key]: accept({ name: "Ada" }), [confirm.key]: accept({ confirm: true }) });
    expect((await wire.until(taskId)).result?.content?.[0]?.text).toBe("Ada is not sure");
  });

  verifies("input:unknown-id", "an update of an unknown task is refused", async () => {
    const { body } = await wire.update(unknownId, { key: accept({}) });
    expect(body.error).toMatchObject({ code: -32602 });
    expect((await wire.update("nonsense", {})).body.error?.code).toBe(-32602);
  });

  verifies("input:shape", "an answer that does not fit its request leaves it open, and says why", async () => {
    const { taskId, task, questions } = await asking(wire);
    const { key } = questions[0]!;
    const misfits: unknown[] = [
      {},
      { action: "maybe" },
      { action: "accept" },
      accept({}),
      accept({ confirm: "yes" }),
      accept({ confirm: { nested: true } }),
      { action: "accept", content: [true] },
      { action: "decline", content: { confirm: true } },
      { content: { confirm: true } },
      { role: "user", content: { type: "text", text: "yes" }, model: "m" },
      { roots: [] },
      "accept",
      null,
    ];
    for (const misfit of misfits) {
      await acknowledged(wire, taskId, { [key]: misfit });
      const shown = JSON.stringify(misfit);
      const now = (await wire.get(taskId)).body.result;
      expect([shown, now?.status, now?.inputRequests]).toEqual([shown, "input_required", task.inputRequests]);
      expect([shown, now?.statusMessage]).toEqual([shown, expect.stringContaining(key)]);
    }
    for (const inputResponses of [undefined, null, [], "x", 7]) {
      const { body } = await wire.request("tasks/update", { taskId, inputResponses });
      expect([inputResponses, body.error?.code]).toEqual([inputResponses, -32602]);
    }
    await acknowledged(wire, taskId, { [key]: { action: "decline" } });
    expect((await wire.until(taskId)).result?.content?.[0]?.text).toBe("Kept file.txt");
  });

  verifies("input:shape", "a misfit beside a good answer does not take the good one along", async () => {
    const { taskId, questions } = await asking(wire, "multi_input");
    const [one, two] = questions;
    await acknowledged(wire, taskId, { [one!.key]: one!.accept("Ada"), [two!.key]: { action: "accept", content: {} } });
    const left = (await wire.get(taskId)).body.result;
    expect(Object.keys(left?.inputRequests ?? {})).toEqual([two!.key]);
  });

  verifies("input:as-direct", "a question within a task has the form of a direct request", async () => {
    const { task } = await asking(wire, "multi_input");
    for (const request of Object.values(task.inputRequests ?? {})) {
      expect(Object.keys(request).toSorted()).toEqual(["method", "params"]);
      expect(request.method).toBe("elicitation/create");
      expect(Object.keys(request.params ?? {}).toSorted()).toEqual(["message", "mode", "requestedSchema"]);
      expect(request.params).toMatchObject({ mode: "form", requestedSchema: { type: "object" } });
    }
  });
});
