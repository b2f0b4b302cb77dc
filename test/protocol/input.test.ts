import { expect, test } from "vitest";
import { noCapabilities } from "../../src/protocol/capabilities.ts";
import { fitFor, unfit, type InputRequest } from "../../src/protocol/input.ts";

const form: InputRequest = {
  method: "elicitation/create",
  params: {
    mode: "form",
    message: "?",
    requestedSchema: { type: "object", properties: { size: { type: "integer", minimum: 1 } }, required: ["size"] },
  },
};

test("what is said of an answer that does not fit holds nothing of the answer, whatever its fields are called", () => {
  const secret = "my password is hunter2";
  for (const content of [
    { [secret]: { deep: true } },
    { size: secret },
    { size: 0, [secret]: [[]] },
    { [secret]: 1 },
    [secret],
    secret,
  ]) {
    const reason = unfit(form, { action: "accept", content });
    expect(reason).toMatch(/content/);
    expect(reason).not.toContain("hunter2");
  }
});

test("fields that hold what a form can't give are refused, others that nobody asked for are not", () => {
  for (const extra of ["text", 1.5, true, ["a", "b"]])
    expect(unfit(form, { action: "accept", content: { size: 1, extra } })).toBeNull();
  for (const extra of [null, {}, [1], [["a"]]])
    expect(unfit(form, { action: "accept", content: { size: 1, extra } })).toMatch(/content/);
});

test("sampling that needs tools, in whatever way it says so, is only for clients that declared them", () => {
  const ask = (params: object): InputRequest => ({ method: "sampling/createMessage", params: { ...params } });
  const requests = { plain: ask({}), tools: ask({ tools: [] }), choice: ask({ toolChoice: { mode: "auto" } }) };
  const client = (tools: boolean) => ({ ...noCapabilities, sampling: { basic: true, tools } });
  expect(Object.keys(fitFor(client(false), requests))).toEqual(["plain"]);
  expect(Object.keys(fitFor(client(true), requests))).toEqual(["plain", "tools", "choice"]);
  expect(fitFor(noCapabilities, requests)).toEqual({});
});
