import { expect, test } from "vitest";
import { z } from "zod";
import { taskTool } from "../../src/tool.ts";
import type { Wire } from "../wire/client.ts";
import { authenticate, bench, text } from "./bench.ts";

/*
 * Faults of other implementations in telling callers apart.
 *
 * Of BL-77 the timing is left out: a foreign id and an unknown one take the same statement, and a difference of
 * microseconds can't be measured on a shared machine without a test that fails by chance.
 */

const asks = taskTool({
  name: "asks",
  async run(_args, task) {
    const { value } = await task.elicit("name", { message: "?", schema: z.object({ value: z.string() }) });
    return text(`${task.owner} ${value}`);
  },
});
const unknown = "AAAAAAAAAAAAAAAAAAAAAA";

/** What the three methods and a subscription say of an id, without the id. */
async function seenOf(wire: Wire, id: string): Promise<string> {
  const replies = [
    await wire.get(id, { id: 1 }),
    await wire.update(id, { name: { action: "accept", content: { value: "mine" } } }, { id: 2 }),
    await wire.cancel(id, { id: 3 }),
  ];
  const stream = await Array.fromAsync(await wire.listen([id], { id: 4 }));
  const headers = replies.map(({ headers }) => [...headers].filter(([name]) => name !== "date"));
  return JSON.stringify([replies.map(({ status, body }) => [status, body]), headers, stream]).replaceAll(id, "ID");
}

test("BL-77: somebody else's task and an unknown one are answered with the same bytes, and nothing happens to it", async () => {
  const tokens = { a: { iss: "i", sub: "alice" }, b: { iss: "i", sub: "bob" } };
  await using own = await bench([asks], { serve: { authenticate: authenticate(tokens) } });
  const [alice, bob] = [own.wire({ token: "a" }), own.wire({ token: "b" })];
  const id = await alice.start("asks");
  const before = await alice.until(id, "input_required");
  const foreign = await seenOf(bob, id);
  expect(foreign).toBe(await seenOf(bob, unknown));
  expect(foreign).toContain("-32602");
  expect(foreign).not.toContain('"taskIds":["');
  const { pollIntervalMs: _, ...after } = (await alice.get(id)).body.result ?? {};
  expect(after).toEqual({ ...before, pollIntervalMs: undefined });
});

test("BL-77: without a token or with a bad one, every request is 401 before anything is looked at", async () => {
  await using own = await bench([asks], { serve: { authenticate: authenticate({ a: { sub: "alice" } }) } });
  const id = await own.wire({ token: "a" }).start("asks");
  for (const wire of [own.wire(), own.wire({ token: "guess" })]) {
    for (const target of [id, unknown]) {
      const replies = [
        await wire.get(target),
        await wire.update(target, {}),
        await wire.cancel(target),
        await wire.call("asks"),
      ];
      expect(replies.map(({ status }) => status)).toEqual([401, 401, 401, 401]);
      expect((await wire.listen([target])).status).toBe(401);
    }
  }
});

test("BL-77: where nobody needs a token, a task of nobody and a task of somebody are strangers to each other", async () => {
  const known = authenticate({ a: { sub: "alice" } });
  const optional = (request: Request) => (request.headers.has("authorization") ? known(request) : undefined);
  await using own = await bench([asks], { serve: { authenticate: optional } });
  const [alice, nobody] = [own.wire({ token: "a" }), own.wire()];
  const [hers, free] = [await alice.start("asks"), await nobody.start("asks")];
  expect(await seenOf(nobody, hers)).toBe(await seenOf(nobody, unknown));
  expect(await seenOf(alice, free)).toBe(await seenOf(alice, unknown));
  for (const [wire, id] of [
    [alice, hers],
    [nobody, free],
  ] as const)
    expect((await wire.get(id)).body.result?.taskId).toBe(id);
});

test("BL-78: a refreshed token is the same caller, and the same name at another issuer is not", async () => {
  const tokens = {
    first: { iss: "https://one", sub: "alice" },
    refreshed: { iss: "https://one", sub: "alice" },
    other: { iss: "https://two", sub: "alice" },
  };
  await using own = await bench([asks], { serve: { authenticate: authenticate(tokens) } });
  const id = await own.wire({ token: "first" }).start("asks");
  const refreshed = own.wire({ token: "refreshed" });
  await refreshed.until(id, "input_required");
  const other = own.wire({ token: "other" });
  expect(await seenOf(other, id)).toBe(await seenOf(other, unknown));
  await refreshed.update(id, { name: { action: "accept", content: { value: "mine" } } });
  expect((await refreshed.until(id)).status).toBe("completed");
});

test("BL-78: an outage of the authentication is no missing task, and pollers may come back", async () => {
  const known = authenticate({ a: { sub: "alice" } });
  let down = false;
  const flaky = async (request: Request) => {
    if (down) throw new Error("connect ECONNREFUSED /var/run/secret.sock");
    return known(request);
  };
  await using own = await bench([asks], { serve: { authenticate: flaky } });
  const alice = own.wire({ token: "a" });
  const id = await alice.start("asks");
  down = true;
  const replies = [await alice.get(id), await alice.update(id, {}), await alice.cancel(id)];
  for (const { status, body } of replies) {
    expect(status).toBe(503);
    expect(body.error?.code).toBe(-32603);
    expect(JSON.stringify(body)).not.toMatch(/ECONN|secret/);
  }
  down = false;
  expect((await alice.until(id, "input_required")).taskId).toBe(id);
});
