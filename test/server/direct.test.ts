import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { McpServer, type McpServerFactory } from "@modelcontextprotocol/server";
import { z } from "zod";
import { channels } from "../../src/channels.ts";
import { capabilitiesKey } from "../../src/protocol/capabilities.ts";
import { idempotencyKey } from "../../src/protocol/idempotency.ts";
import { serve, type ServeOptions } from "../../src/server/http.ts";
import type { ServerParts } from "../../src/server/server.ts";
import { introducedBy, newSession } from "../../src/server/session.ts";
import { manualClock } from "../../src/store/contract/manual-clock.ts";
import { taskTool } from "../../src/tool.ts";
import { anyValue, change, changed, header, key, of, type Change } from "./drafts.ts";
import {
  authenticate,
  completed,
  declared,
  factory,
  nextTask,
  open,
  parameters,
  question,
  tools,
  type Json,
  type Served,
} from "./harness.ts";
import { everyInput } from "./old-client.ts";
import { json, send, type Came, type Sent } from "./paths.ts";

const mirrored = taskTool({
  name: "mirrored",
  inputSchema: z.object({ region: z.string().meta({ "x-mcp-header": "Region" }).optional() }),
  run: () => ({ content: [] }),
});

/** Nobody is held, so that every call is answered at once. */
let served: Served;
beforeAll(async () => {
  served = await open(
    { authenticate, maxBodyBytes: 50_000, pollLimit: null },
    { pollMs: 1_000 },
    { grace: 0, hold: 0 },
    { tools: [...tools, mirrored] },
  );
});
afterAll(() => served[Symbol.asyncDispose]());

const calling = (name: string, args: unknown, more: object = {}): Sent => ({
  headers: [
    ["accept", "application/json, text/event-stream"],
    ["content-type", "application/json"],
    ["mcp-protocol-version", "2026-07-28"],
    ["mcp-method", "tools/call"],
    ["mcp-name", name],
    ["authorization", "Bearer ada"],
  ],
  body: JSON.stringify({
    ...{ jsonrpc: "2.0", id: 7, method: "tools/call" },
    params: parameters({ name, ...(args === undefined ? {} : { arguments: args }), ...more }, declared),
  }),
});

const session = newSession(introducedBy({ protocolVersion: "2025-11-25", capabilities: everyInput, clientInfo: {} }));

/** The same in protocol 2025-11-25. */
const callingOld = (name: string, args: unknown, more: object = {}): Sent => ({
  headers: [
    ["accept", "application/json, text/event-stream"],
    ["content-type", "application/json"],
    ["mcp-protocol-version", "2025-11-25"],
    ["mcp-session-id", session],
    ["authorization", "Bearer ada"],
  ],
  body: JSON.stringify({
    ...{ jsonrpc: "2.0", id: 7, method: "tools/call" },
    params: { name, ...(args === undefined ? {} : { arguments: args }), _meta: {}, ...more },
  }),
});

let calls = 0;
/** Sends it with a text of its own, so that no two calls are the same to a server that knows calls again. */
const sendOnce = (port: number, sent: Sent, told: boolean) => {
  calls += 1;
  const nonce = `nonce-${calls.toString().padStart(8, "0")}`;
  return send(port, { ...sent, body: sent.body.replaceAll("nonce-00000000", nonce) }, told);
};

const always = ["taskId", "createdAt", "lastUpdatedAt", "ttlMs", "ttl", "requestState"];

/** A message less what is another for each call. */
const plain = (body: unknown): unknown =>
  JSON.parse(
    JSON.stringify(body, (name, value: unknown) =>
      always.includes(name)
        ? typeof value
        : typeof value === "string"
          ? value.replaceAll(/[A-Za-z0-9_-]{22}/g, "id").replaceAll(/nonce-\d+/g, "nonce")
          : value,
    ) ?? "null",
  );

/**
 * An answer less that: of a stream, event by event, however it was cut into pieces. The SDK keeps the connection of a stream,
 * also where it is to end.
 */
function alike({ status, headers, body }: Came): unknown {
  if (headers["content-type"] !== "text/event-stream") return { status, headers, body: plain(body) };
  const { sized: _sized, "transfer-encoding": _cut, connection: _kept, ...others } = headers;
  const lines = String(body).split("\n");
  const events = lines.map((line) => (line.startsWith("data: ") ? plain(json(line.slice(6))) : line));
  return { status, headers: others, body: events };
}

/** How many tasks there were. */
let created = 0;
const count = () => void (created += 1);
beforeAll(() => channels.created.subscribe(count));
afterAll(() => channels.created.unsubscribe(count));

/** What comes of a request on both ways: the answer, and how many tasks. */
async function both(sent: Sent, port = served.listening.port) {
  const outcomes = [];
  for (const told of [true, false]) {
    const before = created;
    const came = await sendOnce(port, sent, told);
    outcomes.push({ ...(alike(came) as object), tasks: created - before });
  }
  const [ours, stock] = outcomes;
  return { ours, stock };
}

test.for([
  ["optional", { text: "nonce-00000000" }, 1],
  ["optional", { text: "nonce-00000000", count: "three" }, 0],
  ["optional", undefined, 0],
  ["required", undefined, 1],
  ["required", { any: ["thing", { deep: null }] }, 1],
  ["typed", {}, 1],
  ["asks_first", {}, 0],
  ["plain", { name: "nonce-00000000" }, 0],
  ["mirrored", {}, 1],
  ["mirrored", { region: "nonce-00000000" }, 0],
  ["nothing", {}, 0],
] as const)("a call of %s with %j comes to the same on both ways: %i task", async ([name, args, tasks]) => {
  const { ours, stock } = await both(calling(name, args));
  expect(ours).toEqual(stock);
  expect(ours).toMatchObject({ tasks });
});

/** Sends calls that are nearly good. A quarter of them at least must have been good enough, or little was compared. */
async function alikeWhatever(
  start: fc.Arbitrary<{ readonly name: string; readonly changes: readonly Change[] }>,
  call: (name: string, args: object) => Sent,
  numRuns: number,
): Promise<void> {
  let made = 0;
  const alikeOnce = fc.asyncProperty(start, async ({ name, changes }) => {
    const { ours, stock } = await both(changed(call(name, { text: "nonce-00000000" }), changes));
    expect(ours).toEqual(stock);
    made += ours?.tasks ?? 0;
  });
  await fc.assert(alikeOnce, { numRuns });
  expect(made).toBeGreaterThan(numRuns / 4);
}

test("whatever is sent, the two ways answer alike, and make as many tasks", { timeout: 120_000 }, async () => {
  const start = fc.record({
    name: of("optional", "optional", "required", "typed", "asks_first", "plain", "mirrored"),
    changes: fc.array(
      fc.oneof(
        change,
        header("mcp-method", of("tools/call", "tools/list", "tasks/get")),
        header("mcp-name", of("optional", "required", "plain", "task_wait", "=?base64?b3B0aW9uYWw=?=", " optional")),
        header("mcp-param-region", of("x", "eu", "=?base64?***?=")),
        key("message", "method", of<unknown>("tools/call", "tools/list", "tasks/get")),
        key("params", "name", fc.oneof(anyValue, of<unknown>("optional", "required", "plain", "task_cancel"))),
        key("params", "arguments", fc.oneof(anyValue, of<unknown>({ text: "nonce-00000000", count: 2 }, { text: 1 }))),
        key("params", "inputResponses", fc.oneof(anyValue, fc.dictionary(fc.string(), anyValue))),
        key("envelope", idempotencyKey, of<unknown>("short", 1, "nonce-00000000-nonce-00000000")),
        key("envelope", "traceparent", of<unknown>(`00-${"a".repeat(32)}-${"b".repeat(16)}-01`, "x", 1)),
        of<Change>((draft) => (draft.text = (message) => JSON.stringify(message) + " ".repeat(60_000))),
      ),
      { maxLength: 2 },
    ),
  });
  await alikeWhatever(start, calling, 400);
});

test.for([
  ["optional", { text: "nonce-00000000" }, {}, 1],
  ["optional", { text: "nonce-00000000" }, { task: {} }, 1],
  ["optional", { text: "nonce-00000000" }, { task: { ttl: -1 } }, 0],
  ["optional", { text: 3 }, {}, 0],
  ["required", {}, {}, 0],
  ["required", {}, { task: { ttl: 60_000 } }, 1],
  ["each", {}, {}, 1],
  ["plain", { name: "nonce-00000000" }, {}, 0],
  ["nothing", {}, {}, 0],
] as const)("in 2025-11-25, a call of %s with %j, %j comes to the same: %i task", async ([name, args, more, tasks]) => {
  const { ours, stock } = await both(callingOld(name, args, more));
  expect(ours).toEqual(stock);
  expect(ours).toMatchObject({ status: 200, headers: { "content-type": "text/event-stream" }, tasks });
});

test("in 2025-11-25 too, whatever is sent, the two ways answer alike", { timeout: 120_000 }, async () => {
  const start = fc.record({
    name: of("optional", "optional", "required", "each", "plain"),
    changes: fc.array(
      fc.oneof(
        change,
        header("mcp-protocol-version", of("2025-06-18", "2025-03-26", "2024-11-05", "2026-07-28", "1999-01-01")),
        header("mcp-name", of("optional", "\u00e9")),
        header("mcp-session-id", of("x", `${session}x`, session.replace(".fustr.", ".fustro."))),
        key("message", "method", of<unknown>("tools/call", "tools/list", "tasks/get")),
        key("params", "name", fc.oneof(anyValue, of<unknown>("optional", "required", "plain", "task_cancel"))),
        key("params", "arguments", fc.oneof(anyValue, of<unknown>({ text: "nonce-00000000", count: 2 }, { text: 1 }))),
        key("params", "task", fc.oneof(anyValue, of<unknown>({}, { ttl: 1 }, { ttl: null }, { ttl: "x" }))),
        key("envelope", "progressToken", fc.oneof(anyValue, of<unknown>("p", 1))),
      ),
      { maxLength: 2 },
    ),
  });
  await alikeWhatever(start, callingOld, 300);
});

test.for([
  ["2026-07-28", calling("each", {}, { _meta: { progressToken: "p", [capabilitiesKey]: {} } })],
  ["2025-11-25", callingOld("each", {}, { _meta: { progressToken: "p" } })],
] as const)("a held call of %s hears of progress and of its end alike", async ([, sent]) => {
  const text = sent.body.replace(JSON.stringify(declared), "{}");
  const answers = [];
  for (const told of [true, false]) {
    const clock = manualClock();
    await using held = await open({}, { clock, pollMs: 1_000 }, { hold: "10m" });
    const begun = nextTask();
    const answered = send(held.listening.port, { ...sent, body: text }, told);
    await begun;
    const claim = await held.claim();
    for (const step of ["one", "two"]) {
      clock.advance(5_000);
      await held.engine.attempts.setStatus(claim, step, null);
    }
    clock.advance(5_000);
    await held.finish(claim, completed("done", { structuredContent: { n: 1 }, _meta: { own: 1 } }));
    answers.push(alike(await answered));
  }
  expect(answers[0]).toEqual(answers[1]);
  expect(JSON.stringify(answers[0])).toMatch(/notifications\/progress.*notifications\/progress.*"done"/);
});

test.for([
  ["2026-07-28", calling("each", {}).body.replace(JSON.stringify(declared), "{}"), calling("each", {}).headers],
  ["2025-11-25", callingOld("each", {}).body, callingOld("each", {}).headers],
] as const)("a held call of %s keeps no server of the SDK", async ([, body, headers]) => {
  const closed: string[] = [];
  const { promise: isClosed, resolve } = Promise.withResolvers<void>();
  await using patient = await open({}, {}, { hold: "20s" });
  await using other = await withFactory(
    () => {
      const mcp = factory();
      mcp.server.onclose = () => resolve(void closed.push("server"));
      return mcp;
    },
    {},
    patient.parts,
  );
  const begun = nextTask();
  const answered = send(other.port, { headers, body }, true).finally(() => closed.push("call"));
  await begun;
  await isClosed;
  await patient.finish(await patient.claim(), completed("done"));
  expect(JSON.stringify((await answered).body)).toContain("done");
  expect(closed).toEqual(["server", "call"]);
});

test("a key is of one call, whichever way it comes", async () => {
  const args = { text: "the same" };
  const sent = calling("optional", args, { _meta: { [idempotencyKey]: "k".repeat(22) } });
  const ids = [];
  for (const told of [true, false, true])
    ids.push(((await send(served.listening.port, sent, told)).body as Json).result);
  expect(new Set(ids.map(({ taskId }) => taskId as string)).size).toBe(1);
});

test.for([
  ["optional", completed("done", { structuredContent: { a: 1 } })],
  ["typed", completed("done", { structuredContent: { url: "https://x.example/" } })],
  ["typed", completed("done", { structuredContent: { no: "url" } })],
  ["optional", { status: "failed", error: '{"code":-32000,"message":"no luck","data":[1]}', statusMessage: "no luck" }],
  ["optional", { status: "failed", error: '{"code":-32021,"message":"no form"}', statusMessage: "no form" }],
  ["optional", { status: "cancelled", statusMessage: null }],
] as const)("a %s that ends within the grace is answered alike: %j", async ([name, outcome]) => {
  await using patient = await open({}, {}, { grace: "20s" });
  const answers = [];
  for (const told of [true, false]) {
    const begun = nextTask();
    const answered = send(patient.listening.port, calling(name, { text: "x" }), told);
    await begun;
    await patient.finish(await patient.claim(), outcome);
    answers.push(alike(await answered));
  }
  expect(answers[0]).toEqual(answers[1]);
});

test("what asks within the grace, and progress on a held call, go out alike", async () => {
  await using patient = await open({}, { pollMs: 1_000 }, { grace: "20s", hold: "20s" });
  for (const capabilities of [declared, { elicitation: {} }]) {
    const answers = [];
    for (const told of [true, false]) {
      const sent = calling("each", {}, { _meta: { progressToken: "p" } });
      const body: Json = JSON.parse(sent.body);
      body.params._meta[capabilitiesKey] = capabilities;
      const begun = nextTask();
      const answered = send(patient.listening.port, { ...sent, body: JSON.stringify(body) }, told);
      await begun;
      const claim = await patient.claim();
      const waits = { inputs: [{ key: "one", request: question("Well?") }], events: [], timers: [] };
      await patient.engine.attempts.park(claim, waits, false);
      answers.push(alike(await answered));
    }
    expect(answers[0]).toEqual(answers[1]);
  }
});

test("a body that was read before us, and is nested too deeply to be written, is refused on both ways", async () => {
  const server = createServer((incoming, outgoing) => {
    void text(incoming).then((read) => {
      served.handler.node(Object.assign(incoming, { body: JSON.parse(read) as unknown }), outgoing);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const sent = calling("required", { deep: "deep" });
  const body = sent.body.replace('"deep":"deep"', `"deep":${"[".repeat(20_000)}${"]".repeat(20_000)}`);
  const { ours, stock } = await both({ ...sent, path: "/", body }, (server.address() as AddressInfo).port);
  server.close();
  expect(ours).toEqual(stock);
  expect(ours).toMatchObject({ body: { error: { code: -32602 } }, tasks: 0 });
});

/** Serves the same tasks by another factory, and tells what its servers saw. */
async function withFactory(
  make: McpServerFactory,
  options: ServeOptions = { authenticate },
  parts: ServerParts = served.parts,
) {
  const handler = serve(parts, make, options);
  const { port } = await handler.listen();
  return { port, [Symbol.asyncDispose]: () => handler.close() };
}

const stock = () => factory();
const wrapped = (seen: unknown[]): McpServerFactory => {
  return ({ era, authInfo, requestInfo }) => {
    const mcp = factory();
    const connect = mcp.connect.bind(mcp);
    mcp.connect = async (transport) => {
      await connect(transport);
      const deliver = transport.onmessage;
      transport.onmessage = (message, extra) => {
        seen.push({ era, authInfo, agent: requestInfo?.headers.get("x-agent"), message });
        // oxlint-disable-next-line typescript/no-deprecated -- servers may still look there
        seen.push([mcp.server.getClientVersion(), mcp.server.getClientCapabilities()]);
        seen.push([extra?.authInfo, extra?.request?.headers.get("x-agent"), extra?.request?.url.replace(/:\d+/, "")]);
        deliver?.(message, extra);
      };
    };
    return mcp;
  };
};

test("an author's server sees the same of a call on both ways", async () => {
  const seen: unknown[] = [];
  await using other = await withFactory(wrapped(seen));
  const sent = calling("required", {});
  const headers = [...sent.headers, ["x-agent", "smith"] as const];
  const { ours, stock } = await both({ ...sent, headers }, other.port);
  expect(ours).toEqual(stock);
  expect(seen).toHaveLength(6);
  expect(seen.slice(0, 3)).toEqual(seen.slice(3));
});

test.for<[string, McpServerFactory, number]>([
  ["takes few arguments", () => new McpServer({ name: "few", version: "1" }, { maxToolInputElements: 2 }), 0],
  ["throws", () => Promise.reject(new Error("not today")), 0],
  ["refuses by header", ({ requestInfo }) => (requestInfo?.headers.has("x-in") ? stock() : refuse()), 0],
  ["has a tool of that name", () => withTool("required"), 0],
  ["makes no McpServer", () => stock().server, 0],
  ["guards every call", () => guarded(), 0],
  [
    "knows only older protocols",
    () => new McpServer({ name: "old", version: "1" }, { supportedProtocolVersions: ["2025-11-25"] }),
    1,
  ],
])("an author's server that %s does so on both ways", async ([, make, tasks]) => {
  await using other = await withFactory(make);
  const { ours, stock } = await both(calling("required", { a: [1, 2, 3] }), other.port);
  expect(ours).toEqual(stock);
  expect(ours).toMatchObject({ tasks });
});

function refuse(): never {
  throw new Error("not you");
}

function withTool(name: string) {
  const mcp = stock();
  mcp.registerTool(name, {}, () => ({ content: [] }));
  return mcp;
}

/** Answers every call itself, whatever it is of. */
function guarded() {
  const mcp = stock();
  mcp.server.setRequestHandler("tools/call", () => ({ content: [{ type: "text", text: "no" }], isError: true }));
  return mcp;
}

test("a call is answered by a server with no other tool of ours, and by one with all where its length is untold", async () => {
  const made: McpServer[] = [];
  await using other = await withFactory(() => {
    const mcp = stock();
    made.push(mcp);
    return mcp;
  });
  await both(calling("required", {}), other.port);
  const has = (mcp: McpServer | undefined, name: string) => mcp?.toolInputSchemaJson(name) !== undefined;
  expect(made.map((mcp) => [has(mcp, "plain"), has(mcp, "required"), has(mcp, "typed")])).toEqual([
    [true, true, false],
    [true, true, true],
  ]);
});
