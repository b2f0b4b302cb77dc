import { getEventListeners, once } from "node:events";
import { createServer, type RequestListener, type ServerResponse } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import type { JSONRPCMessage } from "@modelcontextprotocol/server";
import { idempotencyKey } from "../../src/protocol/idempotency.ts";
import { answerCall } from "../../src/server/call.ts";
import { createOpenCalls } from "../../src/server/calls.ts";
import { nodeOutlet } from "../../src/server/node-outlet.ts";
import { createPulse } from "../../src/server/pulse.ts";
import { introducedBy, newSession } from "../../src/server/session.ts";
import { webOutlet } from "../../src/server/web-outlet.ts";
import { completed, eventually, nextTask, open, parameters, tools } from "./harness.ts";
import { everyInput } from "./old-client.ts";

const session = newSession(introducedBy({ protocolVersion: "2025-11-25", capabilities: everyInput, clientInfo: {} }));

const common = { accept: "application/json, text/event-stream", "content-type": "application/json" };

/** A call that is held, in each protocol. */
const held = {
  "2026-07-28": {
    headers: { ...common, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "each" },
    body: { params: parameters({ name: "each", arguments: {} }, {}) },
  },
  "2025-11-25": {
    headers: { ...common, "mcp-protocol-version": "2025-11-25", "mcp-session-id": session },
    body: { params: { name: "each", arguments: {} } },
  },
};
const protocols = ["2026-07-28", "2025-11-25"] as const;

function textOf(protocol: keyof typeof held, id = 1): { headers: Record<string, string>; body: string } {
  const body = JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", ...held[protocol].body });
  return { headers: { ...held[protocol].headers, "content-length": String(Buffer.byteLength(body)) }, body };
}

const request = (protocol: keyof typeof held, signal: AbortSignal) =>
  new Request("http://127.0.0.1/mcp", { method: "POST", ...textOf(protocol), signal });

/** What nobody caught, while something is tried. */
function uncaught() {
  const thrown: unknown[] = [];
  const take = (error: unknown) => void thrown.push(error);
  process.on("uncaughtException", take).on("unhandledRejection", take);
  return {
    thrown,
    [Symbol.dispose]: () => void process.off("uncaughtException", take).off("unhandledRejection", take),
  };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

async function serving(listener: RequestListener) {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

test.for(protocols)("a request of %s that is aborted leaves its task alone, whatever the reason", async (protocol) => {
  for (const reason of [undefined, "Error: aborted", new Error("gone")]) {
    await using served = await open({}, {}, { hold: "20s" });
    const left = new AbortController();
    const begun = nextTask();
    const answered = served.handler.fetch(request(protocol, left.signal));
    await begun;
    left.abort(reason);
    await (await answered).text();
    await served.finish(await served.claim(), completed("done"));
    expect(await served.tasks()).toMatchObject([{ status: "completed", cancelRequested: false }]);
  }
});

test("a call whose connection is gone is none that its session can cancel", async () => {
  await using served = await open({}, {}, { hold: "20s" });
  const left = new AbortController();
  const begun = nextTask();
  const answered = served.handler.fetch(request("2025-11-25", left.signal));
  await begun;
  left.abort();
  await (await answered).text();
  const { headers } = held["2025-11-25"];
  const body = JSON.stringify({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } });
  await served.handler.fetch(new Request("http://127.0.0.1/mcp", { method: "POST", headers, body }));
  // Waits for whatever is still open.
  await served.handler.close();
  expect(await served.tasks()).toMatchObject([{ status: "working", cancelRequested: false }]);
});

test.for(protocols)("a call of %s whose client is gone before it is read starts nothing", async (protocol) => {
  await using served = await open({}, {}, { hold: "20s" });
  const answered = await served.handler.fetch(request(protocol, AbortSignal.abort()));
  expect(await answered.text()).toBe("");
  // Waits for whatever is still open.
  await served.handler.close();
  expect(await served.tasks()).toEqual([]);
  expect(served.errors).toEqual([]);
});

test("a call ends with its connection or with its session's word for it, whichever comes first", () => {
  const calls = createOpenCalls();
  const from = { session, owner: "" };
  const hear = (reason: string) =>
    calls.hear(from, { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1, reason } });

  const first = new AbortController();
  const taken = calls.enter(from, 1, first.signal);
  hear("stop");
  first.abort("gone");
  expect(taken.signal.reason).toBe("stop");
  taken.leave();

  const second = new AbortController();
  const left = calls.enter(from, 1, second.signal);
  second.abort("gone");
  hear("stop");
  expect(left.signal.reason).toBe("gone");
  left.leave();

  expect(calls.enter(from, 1, AbortSignal.abort("gone before")).signal.reason).toBe("gone before");
});

test("a call that was answered is kept neither for its connection nor for its session", () => {
  const calls = createOpenCalls();
  const from = { session, owner: "" };
  const connection = new AbortController();
  const [answered, open] = [calls.enter(from, 1, connection.signal), calls.enter(from, 2, connection.signal)];
  const again = calls.enter(from, 1, connection.signal);
  expect(getEventListeners(connection.signal, "abort")).toHaveLength(3);
  answered.leave();
  open.leave();
  expect(getEventListeners(connection.signal, "abort")).toHaveLength(1);
  for (const requestId of [1, 2])
    calls.hear(from, { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } });
  expect([answered, open, again].map(({ signal }) => signal.aborted)).toEqual([false, false, true]);
});

test("a request that is aborted after its answer is of no matter", async () => {
  using seen = uncaught();
  await using served = await open({}, {}, { hold: "20s" });
  const left = new AbortController();
  const begun = nextTask();
  const answered = served.handler.fetch(request("2025-11-25", left.signal));
  await begun;
  await served.finish(await served.claim(), completed("done"));
  expect(await (await answered).text()).toContain("done");
  left.abort();
  await turn();
  expect(seen.thrown).toEqual([]);
});

test.for(protocols)("a call of %s that somebody else answered ends quietly", async (protocol) => {
  using seen = uncaught();
  await using served = await open({}, {}, { hold: "20s" });
  const outgoings: ServerResponse[] = [];
  await using other = await serving((incoming, outgoing) => {
    outgoings.push(outgoing);
    served.handler.node(incoming, outgoing);
  });
  const begun = nextTask();
  const answered = fetch(`http://127.0.0.1:${other.port}/`, { method: "POST", ...textOf(protocol) });
  await begun;
  // As a limit of time of another middleware does.
  if (!outgoings[0]!.headersSent) outgoings[0]!.statusCode = 503;
  outgoings[0]!.end("too late");
  expect(await (await answered).text()).toContain("too late");
  await served.finish(await served.claim(), completed("done"));
  await eventually(async () => (await served.tasks())[0]?.status === "completed");
  await turn();
  expect(seen.thrown).toEqual([]);
});

test.for(["HTTP/1.1", "HTTP/1.0"])("a stream over %s ends its connection if it is to", async (version) => {
  await using served = await open({}, {}, { hold: 0 });
  const { headers, body } = textOf("2025-11-25");
  const lines = Object.entries({ ...headers, host: "127.0.0.1", connection: "close" }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  const socket = connect(served.listening.port, "127.0.0.1");
  socket.write(`POST /mcp ${version}\r\n${lines.join("")}\r\n${body}`);
  const came = await text(socket);
  expect(came).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(came).toMatch(/\r\nconnection: close\r\n/i);
  expect(came).toContain("data: {");
});

test("a call behind another one on its connection is left when that is gone", async () => {
  const gone: Promise<unknown>[] = [];
  const { promise: both, resolve } = Promise.withResolvers<void>();
  await using served = await serving((incoming, outgoing) => {
    const { signal } = nodeOutlet(incoming, outgoing, createPulse(0));
    gone.push(once(signal, "abort"));
    if (gone.length === 12) resolve();
  });
  const socket = connect(served.port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write("GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(12));
  await both;
  socket.destroy();
  await Promise.all(gone);
});

test("whoever doesn't read gets no reports and no signs of life, and all that is asked", async () => {
  const said = (method: string): JSONRPCMessage => ({ jsonrpc: "2.0", method, params: { text: "x".repeat(1_000) } });
  const { promise: came, resolve } = Promise.withResolvers<string[]>();
  await using served = await serving((incoming, outgoing) => {
    const outlets = [nodeOutlet(incoming, outgoing, createPulse(0))];
    const web = webOutlet(new AbortController().signal, createPulse(0));
    outlets.push(web.outlet);
    for (const outlet of outlets) {
      for (let n = 0; n < 1_000; n++) outlet.send(said("notifications/progress"));
      outlet.send(said("elicitation/create"));
      outlet.end({ jsonrpc: "2.0", id: 1, result: {} }, 200);
    }
    void web.response.then(async (response) => resolve([await response.text()]));
  });
  const node = await (await fetch(`http://127.0.0.1:${served.port}/`)).text();
  for (const stream of [node, ...(await came)]) {
    expect(stream.match(/notifications\/progress/g)!.length).toBeLessThan(100);
    expect(stream).toMatch(/elicitation\/create.*"result":\{\}/s);
  }
});

test("a call whose _meta is refused is left, as any other is", async () => {
  let left = 0;
  await using served = await open();
  const { signal } = new AbortController();
  const { owner, ...rest } = { owner: "", client: { tasks: false }, tool: tools[0]! };
  const terms = { ...rest, owner, generation: "legacy", limits: {}, push: null, signal, leave: () => void (left += 1) };
  const incoming = {
    ...{ id: 1, auth: undefined, http: true, send: () => Promise.resolve(), signal },
    params: { name: "optional", _meta: { [idempotencyKey]: "short" } },
  };
  const parts = { ...served.parts, connection: "", stop: signal };
  const round = { inputResponses: {}, requestState: undefined };
  const answer = await answerCall(parts, incoming, round, () => terms as never);
  expect(answer).toMatchObject({ error: { code: -32602 } });
  expect(left).toBe(1);
});

test.for(protocols)("an answer of %s that can't be made is an error, and ends nothing else", async (protocol) => {
  using seen = uncaught();
  await using served = await open({}, {}, { hold: "20s" });
  // As much as text can't be nested when it is written.
  const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
  const begun = nextTask();
  const answered = fetch(served.listening.url, { method: "POST", ...textOf(protocol) });
  await begun;
  const result = `{"content":[],"structuredContent":{"deep":${deep}}}`;
  await served.finish(await served.claim(), { status: "completed", result });
  expect(await (await answered).text()).toContain('"code":-32603');
  expect(seen.thrown).toEqual([]);
});
