import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterEach, expect, test, vi } from "vitest";
import { TaskClient, patientFetch } from "../../src/client/index.ts";
import { longFetch } from "../../src/client/long-fetch.ts";
import { ManualClock } from "./clock.ts";
import { fakeServer } from "./fake-http.ts";
import { connected } from "./setup.ts";
import { completed, created, text, working } from "./wire.ts";

/** Where Node's fetch keeps how long a body may be silent, and how to make another one that is less patient. */
const dispatcher = Symbol.for("undici.globalDispatcher.1");
const node = globalThis as unknown as Record<symbol, unknown>;
await fetch("data:,").then((response) => response.text());
const usual = node[dispatcher];

/** Makes Node's own fetch give up on a body after so long a silence, as it does after 300 s by itself. */
function endureOnly(bodyTimeout: number): void {
  const { constructor: Agent } = usual as { constructor: new (options: object) => unknown };
  node[dispatcher] = new Agent({ bodyTimeout, headersTimeout: bodyTimeout });
}
afterEach(() => {
  node[dispatcher] = usual;
});

const slow = { pollIntervalMs: 60_000 };

test("a stream with nothing but comments is neither given up nor opened again, however impatient fetch is", async () => {
  endureOnly(300);
  const bare = createServer((_, response) => void response.writeHead(200).write(":\n"));
  await new Promise<void>((resolve) => bare.listen(0, "127.0.0.1", resolve));
  const impatient = await fetch(`http://127.0.0.1:${(bare.address() as AddressInfo).port}`);
  await expect(impatient.text()).rejects.toThrow("terminated");
  bare.closeAllConnections();
  bare.close();

  let streams = 0;
  await using server = await fakeServer((seen, reply) => {
    if (seen.method === "tools/call") return reply.result(created(slow));
    if (seen.method === "tasks/get") return reply.result(working(slow));
    streams += 1;
    const meta = { _meta: { "io.modelcontextprotocol/subscriptionId": seen.id } };
    const say = (method: string, params: object) =>
      reply.raw.write(`data: ${JSON.stringify({ jsonrpc: "2.0", method, params: { ...params, ...meta } })}\n\n`);
    reply.raw.writeHead(200, { "content-type": "text/event-stream" });
    say("notifications/subscriptions/acknowledged", { notifications: seen.params.notifications });
    setTimeout(() => reply.raw.write(": still here\n\n"), 700);
    const { resultType: _, ...task } = completed("at last") as { resultType: string };
    setTimeout(() => say("notifications/tasks", task), 1_400);
  });
  const errors: unknown[] = [];
  const tasks = await connected(server, { listen: true, onError: (error) => errors.push(error) });
  expect(await tasks.callTool({ name: "x" })).toEqual(text("at last"));
  expect(streams).toBe(1);
  expect(errors).toEqual([]);
  await tasks.close();
});

test("a call may be answered late without a byte on the way", async () => {
  endureOnly(300);
  await using server = await fakeServer((_, reply) => {
    setTimeout(() => reply.result({ resultType: "complete", ...text("slow but plain") }), 900);
  });
  const tasks = await connected(server);
  expect(await tasks.callTool({ name: "x" })).toEqual(text("slow but plain"));
  await tasks.close();
});

test("a silent stream that fetch of one's own gives up is opened again, and the task is read", async () => {
  endureOnly(300);
  let streams = 0;
  await using server = await fakeServer((seen, reply) => {
    if (seen.method === "tools/call") return reply.result(created(slow));
    if (seen.method === "tasks/get") return reply.result(streams > 1 ? completed("read again") : working(slow));
    streams += 1;
    const _meta = { "io.modelcontextprotocol/subscriptionId": seen.id };
    const params = { notifications: seen.params.notifications, _meta };
    const message = { jsonrpc: "2.0", method: "notifications/subscriptions/acknowledged", params };
    reply.raw.writeHead(200, { "content-type": "text/event-stream" }).write(`data: ${JSON.stringify(message)}\n\n`);
  });
  const client = new Client({ name: "test", version: "1" });
  const tasks = await new TaskClient(client).connect(server.url, { fetch: (url, init) => fetch(url, init) });
  expect(await tasks.callTool({ name: "x" })).toEqual(text("read again"));
  expect(streams).toBe(2);
  await tasks.close();
});

test.each([["with a transport of the host's own"], ["with a client that is connected already"]])(
  "Retry-After is heeded %s",
  async (how) => {
    let polls = 0;
    await using server = await fakeServer(({ method }, reply) => {
      if (method === "tools/call") return reply.result(created());
      polls += 1;
      if (polls === 1) return reply.status(429, { "retry-after": "7" });
      reply.result(completed());
    });
    const clock = new ManualClock();
    const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
    const transport = new StreamableHTTPClientTransport(new URL(server.url));
    const isConnected = how.includes("already");
    if (isConnected) await client.connect(transport);
    const tasks = new TaskClient(client, { clock, listen: false });
    if (!isConnected) await tasks.connect(transport);
    const result = tasks.callTool({ name: "x" });
    await clock.pass();
    await vi.waitFor(() => expect(polls).toBe(1));
    expect(await clock.pass()).toBe(7_000);
    expect(await result).toEqual(text("done"));
    await tasks.close();
  },
);

test("the patient fetch is put around a fetch once, and hands on what it is given", async () => {
  const inner = vi.fn(async () => new Response("ok"));
  const patient = patientFetch(inner);
  expect(patientFetch(patient)).toBe(patient);
  await patient("http://127.0.0.1/", { headers: { "mcp-method": "subscriptions/listen" } });
  expect(inner).toHaveBeenCalledTimes(1);
});

test("the long fetch gives status, headers and body as fetch does, and obeys its signal", async () => {
  const server = createServer((request, response) => {
    if (request.url === "/none") return void response.writeHead(204).end();
    if (request.url === "/never") return;
    response.writeHead(418, "Teapot", { "x-one": "1", "set-cookie": ["a", "b"] });
    request.pipe(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const echo = await longFetch(url, { method: "POST", body: "héllo", headers: { "content-type": "text/plain" } });
  expect([echo.status, echo.statusText, echo.headers.get("x-one")]).toEqual([418, "Teapot", "1"]);
  expect(echo.headers.getSetCookie()).toEqual(["a", "b"]);
  expect(await echo.text()).toBe("héllo");
  expect(await (await longFetch(`${url}/none`)).text()).toBe("");
  const reason = new Error("enough");
  await expect(longFetch(url, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  const controller = new AbortController();
  const never = longFetch(`${url}/never`, { signal: controller.signal });
  setTimeout(() => controller.abort(reason), 50);
  await expect(never).rejects.toBe(reason);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await expect(longFetch(url)).rejects.toMatchObject({ code: "ECONNREFUSED" });
});
