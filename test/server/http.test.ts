import { createServer, request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";
import { requireBearerAuth } from "@modelcontextprotocol/server";
import { expect, test } from "vitest";
import { newTaskId } from "../../src/protocol/ids.ts";
import { authenticate, declared, open, parameters } from "./harness.ts";

const message = (method: string, params: object = {}, id: unknown = 1) =>
  JSON.stringify({ jsonrpc: "2.0", id, method, params: parameters(params, declared) });

const headers = {
  accept: "application/json, text/event-stream",
  "content-type": "application/json",
  "mcp-protocol-version": "2026-07-28",
};

/** Sends headers as raw bytes, which `fetch` would refuse. */
function raw(port: number, more: Record<string, string>, body: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest(
      { host: "127.0.0.1", port, path: "/mcp", method: "POST", headers: { ...headers, ...more } },
      (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (part: string) => (text += part));
        response.on("end", () => resolve({ status: response.statusCode!, text }));
      },
    );
    sent.on("error", reject);
    sent.end(body);
  });
}

test.each([
  ["a foreign host", { host: "evil.example" }],
  ["a foreign page", { origin: "http://evil.example" }],
  ["a page without an origin", { origin: "null" }],
])("a request for or from %s is refused with 403", async (_, more) => {
  await using served = await open();
  const body = message("tasks/get", { taskId: "x" });
  const { status } = await raw(served.listening.port, { "mcp-method": "tasks/get", "mcp-name": "x", ...more }, body);
  expect(status).toBe(403);
});

test("hosts and origins may be named, and are then checked wherever requests come from", async () => {
  await using served = await open({ allowedHosts: ["tasks.example"], allowedOrigins: ["app.example"] });
  const ask = (more: Record<string, string>) =>
    served.handler.fetch(
      new Request("http://tasks.example/", {
        method: "POST",
        headers: { ...headers, "mcp-method": "server/discover", ...more },
        body: message("server/discover"),
      }),
    );
  expect((await ask({ host: "tasks.example:8080", origin: "https://app.example" })).status).toBe(200);
  expect((await ask({ host: "localhost" })).status).toBe(403);
  expect((await ask({ host: "tasks.example", origin: "http://localhost" })).status).toBe(403);
});

test("it listens on 127.0.0.1 and serves /mcp only", async () => {
  await using served = await open();
  expect(served.listening.url).toBe(`http://127.0.0.1:${served.listening.port}/mcp`);
  expect((await fetch(new URL("/other", served.listening.url), { method: "POST" })).status).toBe(404);
});

test.each(["GET", "DELETE"])("%s is not allowed", async (method) => {
  await using served = await open();
  const response = await fetch(served.listening.url, { method });
  expect(response.status).toBe(405);
});

test.each([
  ["bytes above ASCII that a body could hold, too", "Mcp-Name", "\u00e9"],
  ["bytes above ASCII", "Mcp-Method", "tasks/g\u00e9t"],
  ["another id", "Mcp-Name", "other"],
])("%s in a header are refused with 400 and -32020", async (_, name, value) => {
  await using served = await open();
  const taskId = name === "Mcp-Name" && value === "\u00e9" ? value : "x";
  const more = { "Mcp-Method": "tasks/get", "Mcp-Name": taskId, [name]: value };
  const { status, text } = await raw(served.listening.port, more, message("tasks/get", { taskId }, "q"));
  expect(status).toBe(400);
  expect(JSON.parse(text)).toMatchObject({ id: "q", error: { code: -32020 } });
});

test("a name in Base64 stands for itself", async () => {
  await using served = await open();
  const taskId = await served.create();
  const name = `=?base64?${Buffer.from(taskId).toString("base64")}?=`;
  const { body } = await served.call("tasks/get", { taskId }, { headers: { "mcp-name": name } });
  expect(body.result).toMatchObject({ taskId });
});

test("a body above the limit is refused with 413, whether its length is told or not", async () => {
  await using served = await open({ maxBodyBytes: 1_000 });
  const body = message("tools/call", { name: "plain", arguments: { name: "x".repeat(2_000) } });
  const told = await fetch(served.listening.url, { method: "POST", headers, body });
  expect(told.status).toBe(413);
  const streamed = await fetch(served.listening.url, {
    method: "POST",
    headers,
    body: new Blob([body]).stream(),
    duplex: "half",
  });
  expect(streamed.status).toBe(413);
  expect(await streamed.json()).toMatchObject({ error: { code: -32602 } });
});

test.each(["", "{", "\u0000"])("a body that is not JSON is answered with 400 and -32700: %j", async (body) => {
  await using served = await open();
  const response = await fetch(served.listening.url, { method: "POST", headers, body });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ error: { code: -32700 } });
});

test.each(["null", "7", '"x"', "[]", "{}"])("JSON that is no message is refused: %s", async (body) => {
  await using served = await open();
  const response = await fetch(served.listening.url, { method: "POST", headers, body });
  expect(response.status).toBe(400);
});

test("a refusal of the gate is sent as it is, and the SDK's gate is one", async () => {
  const gate = requireBearerAuth({
    verifier: {
      verifyAccessToken: (token) =>
        Promise.resolve({ token, clientId: "c", scopes: [], expiresAt: Date.now() / 1000 + 60 }),
    },
  });
  await using served = await open({ authenticate: gate });
  const refused = await served.send("tasks/get", { taskId: newTaskId() });
  expect(refused.status).toBe(401);
  expect(refused.headers.get("www-authenticate")).toContain("Bearer");
  expect((await served.call("tasks/get", { taskId: newTaskId() }, { token: "t" })).body.error!.code).toBe(-32602);
});

test("an auth server that is down is a fault of the server's, not an unknown task", async () => {
  await using served = await open({ authenticate });
  const { status, body } = await served.call("tasks/get", { taskId: newTaskId() }, { token: "outage" });
  expect(status).toBe(503);
  expect(body.error!.code).toBe(-32603);
  expect(JSON.stringify(body)).not.toContain("10.0.0.1");
  expect(served.errors).toMatchObject([
    { code: "INTERNAL", cause: { message: "the auth server at 10.0.0.1 is down" } },
  ]);
});

test("auth that the caller of fetch knows wins over the gate", async () => {
  await using served = await open({ authenticate });
  const taskId = await served.create("required", {}, { token: "ada" });
  const request = () =>
    new Request("http://localhost/", {
      method: "POST",
      headers: { ...headers, "mcp-method": "tasks/get", "mcp-name": taskId, authorization: "Bearer bob" },
      body: message("tasks/get", { taskId }),
    });
  const authInfo = { token: "", clientId: "ada", scopes: [] };
  expect(await (await served.handler.fetch(request(), { authInfo })).json()).toMatchObject({ result: { taskId } });
  expect(await (await served.handler.fetch(request())).json()).toMatchObject({ error: { code: -32602 } });
  const parsedBody: unknown = JSON.parse(message("tasks/get", { taskId }));
  const answer = await served.handler.fetch(request(), { authInfo, parsedBody });
  expect(await answer.json()).toMatchObject({ result: { taskId } });
});

test("node serves behind something that has read and checked the request already", async () => {
  await using served = await open();
  const server = createServer((incoming, outgoing) => {
    void (async () => {
      let text = "";
      for await (const part of incoming) text += String(part);
      Object.assign(incoming, { body: JSON.parse(text), auth: { token: "", clientId: "ada", scopes: [] } });
      served.handler.node(incoming, outgoing);
    })();
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const body = message("tools/call", { name: "required", arguments: {} });
  const answer = await raw(port, { "mcp-method": "tools/call", "mcp-name": "required" }, body);
  expect(JSON.parse(answer.text)).toMatchObject({ result: { resultType: "task" } });
  expect((await served.claim()).task.owner).toBe("ada");
  server.close();
});

test("after closing, nobody listens, and a request that gets through is told so", async () => {
  await using served = await open();
  await served.call("server/discover");
  await served.handler.close();
  await expect(fetch(served.listening.url, { method: "POST", headers, body: "{}" })).rejects.toThrow();
  const request = new Request("http://localhost/", { method: "POST", headers, body: "{}" });
  const response = await served.handler.fetch(request);
  expect(response.status).toBe(503);
  expect(await response.json()).toMatchObject({ error: { code: -32603 } });
});
