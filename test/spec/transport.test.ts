import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect } from "vitest";
import { startFixture } from "../fixture/start.ts";
import { headerValue, wire as connect, type Reply } from "../wire/client.ts";
import { open, stdioFixture, temporaryFolder, unknownId } from "./harness.ts";
import { verifies } from "./verifies.ts";

const folder = temporaryFolder();
const { http, stdio } = await open([]);
const guarded = await open(["--tokens", "alice=A,bob=B", "--grace", "100"], { stdio: false });
const methods = ["tasks/get", "tasks/update", "tasks/cancel"] as const;
/** What a message must never hold: a stack, a path, a statement, a file of ours, a secret. */
const leaks = /\n\s+at |\/work\/|\/tmp\/|node_modules|\.ts:|\bSELECT\b|\bINSERT\b|sqlite|no such table|Bearer|SQLITE/i;

describe("headers", () => {
  const request = (method: string, taskId: string, headers: Record<string, string | null>, id = 1) =>
    http.request(method, { taskId, inputResponses: {} }, { headers, id });
  const refused = ({ status, body }: Reply) => expect([status, body.error?.code]).toEqual([400, -32020]);

  verifies("http:mismatch", "a header that contradicts the body is refused, and nothing is done", async () => {
    const taskId = await http.start("sleepy", { ms: 600_000 });
    const other = await http.start("sleepy", { ms: 600_000 });
    for (const method of methods) {
      refused(await request(method, taskId, { "mcp-name": other }));
      refused(await request(method, taskId, { "mcp-name": "" }));
      refused(await request(method, taskId, { "mcp-name": null }));
      refused(
        await request(method, taskId, { "mcp-name": taskId.toLowerCase() === taskId ? "x" : taskId.toLowerCase() }),
      );
      refused(await request(method, taskId, { "mcp-method": "tools/call" }));
      refused(await request(method, taskId, { "mcp-method": method.toUpperCase() }));
      refused(await request(method, taskId, { "mcp-method": null }));
      refused(await request(method, taskId, { "mcp-protocol-version": null }));
      refused(await request(method, taskId, { "mcp-protocol-version": "2025-11-25" }));
    }
    const call = { name: "sleepy", arguments: { ms: 1 } };
    refused(await http.request("tools/call", call, { headers: { "mcp-name": "greet" } }));
    refused(await http.request("tools/call", call, { headers: { "mcp-method": "tasks/get" } }));
    expect((await http.get(taskId)).body.result?.status).toBe("working");
    await http.cancel(taskId);
    await http.cancel(other);
  });

  verifies(
    "http:mismatch",
    "raw bytes above ASCII and broken encodings are refused, also where they seem to fit",
    async () => {
      for (const taskId of ["caf\u00e9", "\u00fc"]) refused(await request("tasks/get", taskId, { "mcp-name": taskId }));
      const known = await http.start("slow_compute", { seconds: 0, label: "x" });
      for (const name of ["=?base64?***?=", `=?base64?${Buffer.from("x").toString("base64")}?=`, `${known}\u00e9`])
        refused(await request("tasks/get", known, { "mcp-name": name }));
    },
  );

  verifies("http:mismatch", "the encoded form and outer spaces are no contradiction", async () => {
    const taskId = await http.start("slow_compute", { seconds: 0, label: "x" });
    const encoded = `=?base64?${Buffer.from(taskId).toString("base64")}?=`;
    for (const name of [encoded, taskId, ` ${taskId} `])
      expect((await request("tasks/get", taskId, { "mcp-name": name })).body.result?.taskId).toBe(taskId);
    for (const strange of ["caf\u00e9", "тест", " x ", "=?base64?eA==?="]) {
      const { body } = await request("tasks/get", strange, { "mcp-name": headerValue(strange) });
      expect([strange, body.error?.code]).toEqual([strange, -32602]);
    }
  });
});

describe.each([
  ["HTTP", http],
  ["stdio", stdio],
] as const)("errors over %s", (name, wire) => {
  verifies("reserve:names", "no other method begins with tasks/", async () => {
    for (const method of [
      "tasks/",
      "tasks/getx",
      "tasks/send",
      "tasks/subscribe",
      "tasks/get/x",
      "notifications/tasks",
    ]) {
      const { status, body } = await wire.request(
        method,
        { taskId: unknownId },
        { headers: { "mcp-name": unknownId } },
      );
      expect([method, status, body.error?.code]).toEqual([method, name === "HTTP" ? 404 : 200, -32601]);
    }
    const { body } = await wire.request("tools/list");
    expect(JSON.stringify(body)).not.toContain("io.modelcontextprotocol/tasks");
  });

  verifies("err:informative", "messages say what is wrong and how to go on, and leak nothing", async () => {
    const errors = [
      (await wire.get(unknownId)).body.error,
      (await wire.update(unknownId, {})).body.error,
      (await wire.cancel(unknownId)).body.error,
      (await wire.request("tasks/update", { taskId: unknownId })).body.error,
      (await wire.get(unknownId, { capabilities: {} })).body.error,
      (await wire.until(await wire.start("hostile", { kind: "bigint" }))).error,
      (await wire.until(await wire.start("hostile", { kind: "not-a-result" }))).error,
    ];
    for (const error of errors) {
      expect(error?.message).toMatch(/^[A-Z].{15,300}\.$/s);
      expect(JSON.stringify(error)).not.toMatch(leaks);
      expect(JSON.stringify(error)).not.toContain(unknownId);
    }
  });

  verifies("err:internal", "what a tool returns and nobody could send ends as the server's own fault", async () => {
    for (const kind of ["bigint", "cycle", "undefined", "not-a-result"]) {
      const { status, error } = await wire.until(await wire.start("hostile", { kind }));
      expect([kind, status, error?.code]).toEqual([kind, "failed", -32603]);
    }
  });
});

verifies(
  ["err:internal", "err:informative"],
  "a store that breaks is -32603 on every method, without its words",
  async () => {
    const db = join(folder, "broken.db");
    await using server = await startFixture(["--db", db, "--role", "front"]);
    const wire = connect(server.url);
    const taskId = await wire.start("slow_compute");
    {
      using file = new DatabaseSync(db);
      const all = file.prepare("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'table')").all();
      const of = (type: string) => all.filter((one) => one.type === type).map(({ name }) => String(name));
      for (const name of of("view")) file.exec(`DROP VIEW "${name}"`);
      for (const name of of("table"))
        if (!name.startsWith("sqlite_")) file.exec(`ALTER TABLE "${name}" RENAME TO "gone_${name}"`);
    }
    const replies = [
      await wire.get(taskId),
      await wire.update(taskId, { key: { action: "decline" } }),
      await wire.cancel(taskId),
      await wire.call("slow_compute"),
    ];
    const stream = await wire.listen([taskId]);
    const refusal = await stream.next();
    await stream.close();
    for (const error of [...replies.map(({ body }) => body.error), refusal?.error]) {
      expect(error).toMatchObject({ code: -32603 });
      expect(JSON.stringify(error)).not.toMatch(leaks);
      expect(JSON.stringify(error)).not.toContain(taskId);
    }
  },
);

describe("who may touch a task", () => {
  const alice = connect(guarded.url, { token: "A" });
  const bob = connect(guarded.url, { token: "B" });
  /** All of a reply but what is the request's own. */
  const look = ({ status, headers, body: { id: _, ...body } }: Reply) => ({
    status,
    type: headers.get("content-type"),
    length: headers.get("content-length"),
    body,
  });

  verifies("sec:each-request", "somebody else's task looks exactly like none, and stays as it is", async () => {
    const taskId = await alice.start("confirm_delete", { filename: "x" });
    const before = await alice.until(taskId, "input_required");
    const id = 1;
    const accept = { confirm: { action: "accept", content: { confirm: true } } };
    const [key = ""] = Object.keys(before.inputRequests ?? {});
    const responses = { [key]: accept.confirm };
    const pairs = [
      [await bob.get(taskId, { id }), await bob.get(unknownId, { id })],
      [await bob.update(taskId, responses, { id }), await bob.update(unknownId, responses, { id })],
      [await bob.cancel(taskId, { id }), await bob.cancel(unknownId, { id })],
    ] as const;
    for (const [foreign, unknown] of pairs) {
      expect(foreign.body.error?.code).toBe(-32602);
      expect(look(foreign)).toEqual(look(unknown));
    }
    expect({ ...(await alice.get(taskId)).body.result, pollIntervalMs: 0 }).toEqual({ ...before, pollIntervalMs: 0 });
    await alice.cancel(taskId);
  });

  verifies(["sec:each-request", "listen:ack-subset"], "a subscription tells only of one's own tasks", async () => {
    const hers = await alice.start("slow_compute", { seconds: 0.2, label: "x" });
    const his = await bob.start("slow_compute", { seconds: 0.2, label: "x" });
    const stream = await bob.listen([hers, his, unknownId]);
    const [ack, ...others] = await Array.fromAsync(stream);
    expect(ack?.params?.notifications?.taskIds).toEqual([his]);
    expect(others.length).toBeGreaterThanOrEqual(2);
    expect(JSON.stringify(stream.seen)).not.toContain(hers);
    const [foreign, unknown] = await Promise.all(
      [hers, unknownId].map(async (id) => Array.fromAsync(await bob.listen([id], { id: 1 }))),
    );
    expect(foreign).toEqual(unknown);
  });

  verifies("sec:each-request", "nobody and a wrong token are turned away before anything else", async () => {
    const taskId = await alice.start("slow_compute", { seconds: 0, label: "x" });
    for (const token of [undefined, "C", ""]) {
      for (const method of [...methods, "tools/call", "subscriptions/listen"]) {
        const response = await fetch(guarded.url, {
          method: "POST",
          headers: {
            "content-type": "application/json",
            accept: "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            "mcp-name": taskId,
            ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          },
          body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { taskId } }),
        });
        expect([token, method, response.status]).toEqual([token, method, 401]);
        expect(await response.text()).not.toContain(taskId);
      }
    }
    expect((await alice.until(taskId)).status).toBe("completed");
    expect((await alice.until(await alice.start("whoami"))).result?.content?.[0]?.text).toBe("alice");
    expect((await bob.until(await bob.start("whoami"))).result?.content?.[0]?.text).toBe("bob");
  });

  verifies("sec:each-request", "over stdio a task of somebody with a name is as unknown as any", async () => {
    const db = join(folder, "owners.db");
    await using server = await startFixture(["--db", db, "--tokens", "alice=A"]);
    const taskId = await connect(server.url, { token: "A" }).start("slow_compute", { seconds: 0, label: "x" });
    await using nobody = stdioFixture(["--db", db]);
    for (const { body } of [await nobody.get(taskId), await nobody.cancel(taskId), await nobody.update(taskId, {})])
      expect(body.error).toEqual((await nobody.get(unknownId)).body.error);
  });
});
