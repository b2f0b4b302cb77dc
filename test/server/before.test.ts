import { expect, test } from "vitest";
import { TaskError } from "../../src/errors.ts";
import { tasksExtension } from "../../src/protocol/capabilities.ts";
import { declared, open } from "./harness.ts";

const call = { name: "asks_first", arguments: {} };
const accept = (content: object) => ({ action: "accept", content });

test("questions before a task are asked on the call, with keys of their own", async () => {
  await using served = await open();
  const { body } = await served.call("tools/call", call);
  expect(body.result!.resultType).toBe("input_required");
  expect(body.result!.inputRequests).toEqual({
    "before:name": {
      method: "elicitation/create",
      params: {
        mode: "form",
        message: "Who are you?",
        requestedSchema: {
          type: "object",
          properties: { name: { type: "string", minLength: 2 } },
          required: ["name"],
        },
      },
    },
    "before:size": {
      method: "elicitation/create",
      params: {
        mode: "form",
        message: "How many?",
        requestedSchema: { type: "object", properties: { size: { type: "integer", minimum: 1, default: 3 } } },
      },
    },
  });
  await expect(served.claim()).rejects.toThrow("Nothing to claim");
});

test("a call with every answer becomes a task that knows them", async () => {
  await using served = await open();
  const { body } = await served.call("tools/call", {
    ...call,
    inputResponses: { "before:name": accept({ name: "Ada" }), "before:size": accept({}) },
  });
  expect(body.result).toMatchObject({ resultType: "task", status: "working" });
  const claim = await served.claim();
  expect(JSON.parse(claim.answers)).toEqual({ name: { name: "Ada" }, size: { size: 3 } });
});

test("only what is missing or doesn't fit is asked again, and the rest is remembered by the client", async () => {
  await using served = await open();
  const first = await served.call("tools/call", {
    ...call,
    inputResponses: { "before:name": accept({ name: "Ada" }), "before:size": accept({ size: 0 }) },
  });
  expect(first.body.result!.resultType).toBe("input_required");
  expect(Object.keys(first.body.result!.inputRequests)).toEqual(["before:size"]);
  expect(first.body.result!.inputRequests["before:size"].params.message).toMatch(/^How many\? \(.+\)$/);
  const second = await served.call("tools/call", {
    ...call,
    inputResponses: { "before:size": accept({ size: 2 }) },
    requestState: first.body.result!.requestState,
  });
  expect(second.body.result!.resultType).toBe("task");
  expect(JSON.parse((await served.claim()).answers)).toEqual({ name: { name: "Ada" }, size: { size: 2 } });
});

test.each(["not json", "[]", '{"name":{"action":"accept","content":{"name":"x"}}}'])(
  "a state that the client made up, such as %s, is refused",
  async (requestState) => {
    await using served = await open();
    const inputResponses = { "before:size": accept({ size: 2 }) };
    const { body } = await served.call("tools/call", { ...call, inputResponses, requestState });
    expect(body.error).toMatchObject({ code: -32602, message: new TaskError("STATE_REFUSED").message });
    await expect(served.claim()).rejects.toThrow("Nothing to claim");
  },
);

test.each([
  ["decline", "said no"],
  ["cancel", "closed the question"],
])("an answer of %s is a tool error, and there is no task", async (action, text) => {
  await using served = await open();
  const { body } = await served.call("tools/call", { ...call, inputResponses: { "before:name": { action } } });
  expect(body.result).toMatchObject({ isError: true, content: [{ text: expect.stringContaining(text) }] });
  await expect(served.claim()).rejects.toThrow("Nothing to claim");
});

test("a client that can't be asked is told what it would have to declare", async () => {
  await using served = await open();
  const capabilities = { extensions: declared.extensions };
  const { status, body } = await served.call("tools/call", call, { capabilities });
  expect(status).toBe(400);
  expect(body.error).toMatchObject({ code: -32021, data: { requiredCapabilities: { elicitation: { form: {} } } } });
  expect(JSON.stringify(body.error!.data)).not.toContain(tasksExtension);
});
