import fc from "fast-check";
import { declared } from "./harness.ts";
import type { Sent } from "./paths.ts";

/** Changes a request into one that is nearly as good. */
export type Change = (sent: Draft) => void;

/** A request while it is changed. */
export interface Draft {
  headers: [name: string, value: string][];
  message: Record<string, unknown> & { params?: unknown };
  params: Record<string, unknown>;
  envelope: Record<string, unknown>;
  text: (message: unknown) => string;
  path: string;
  method: string;
}

export const of = <T>(...values: T[]) => fc.constantFrom(...values);
export const header = (name: string, values: fc.Arbitrary<string>): fc.Arbitrary<Change> =>
  fc.tuple(of("set", "drop", "twice", "upper"), values).map(([how, value]) => (draft) => {
    const others = draft.headers.filter(([other]) => other !== name);
    const [, old = ""] = draft.headers.find(([other]) => other === name) ?? [];
    if (how === "set") draft.headers = [...others, [name, value]];
    else if (how === "drop") draft.headers = others;
    else if (how === "twice") draft.headers = [...draft.headers, [name, value]];
    else draft.headers = [...others, [name.toUpperCase(), old]];
  });
export const key = (where: "message" | "params" | "envelope", name: string, values: fc.Arbitrary<unknown>) =>
  fc.tuple(fc.integer({ min: 0, max: 3 }), values).map(([how, value]): Change => (draft) => {
    if (how === 0) delete draft[where][name];
    else Object.defineProperty(draft[where], name, { value, enumerable: true, configurable: true, writable: true });
  });

/** What can be read, and not written again. */
const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;

export const anyValue = fc.oneof(
  fc.jsonValue({ maxDepth: 2 }),
  of<unknown>(null, 0, -0, 1.5, 1e30, "", "x", true, [], {}),
);
const clientInfo = of<unknown>({ name: "x", version: "1" }, { name: "x" }, { version: 1 }, "x", null, {}, [], {
  name: "x",
  version: "1",
  icons: [{ src: "https://x.example/a.png" }],
});
const capabilities = of<unknown>(
  declared,
  {},
  { elicitation: {} },
  { tasks: {} },
  null,
  [],
  "x",
  { extensions: [] },
  {
    extensions: { "io.modelcontextprotocol/tasks": null },
  },
);
export const change: fc.Arbitrary<Change> = fc.oneof(
  header("content-type", of("application/json; charset=utf-8", "APPLICATION/JSON", "text/plain", "application/json,")),
  header("accept", of("*/*", "text/event-stream", "application/json")),
  header("mcp-protocol-version", of("2026-07-28", "2025-11-25", "2026-07-28 ", "x", "")),
  header("mcp-method", of("tasks/get", "tasks/update", "TASKS/GET", "tools/call", "tasks/get ", "caf\u00e9")),
  header("mcp-name", fc.oneof(fc.string({ unit: "grapheme-ascii" }), of("", " x", "=?base64?***?=", "caf\u00e9"))),
  header("host", of("evil.example", "localhost", "LOCALHOST:1", "[::1]", "", "a b", "127.0.0.1:99999")),
  header("origin", of("http://localhost", "http://evil.example", "null", "", "x")),
  header("authorization", of("Bearer bob", "Bearer outage", "x", "")),
  header("content-encoding", of("gzip", "identity")),
  header("mcp-session-id", of("x")),
  key("message", "jsonrpc", of<unknown>("2.0", "1.0", 2, null)),
  key("message", "id", fc.oneof(anyValue, fc.string(), fc.integer())),
  key(
    "message",
    "method",
    of<unknown>("tasks/get", "tasks/cancel", "tasks/list", "tools/list", "server/discover", "ping", 1),
  ),
  key("message", "params", anyValue),
  key("message", "extra", anyValue),
  key("params", "taskId", fc.oneof(anyValue, fc.nat(9).map(String))),
  key("params", "inputResponses", fc.oneof(anyValue, fc.dictionary(fc.string(), anyValue))),
  key("params", "requestState", anyValue),
  key("params", "_meta", anyValue),
  key("params", "task", anyValue),
  key("params", "__proto__", anyValue),
  key("envelope", "io.modelcontextprotocol/protocolVersion", of<unknown>("2026-07-28", "2025-11-25", "x", 1, null)),
  key("envelope", "io.modelcontextprotocol/clientInfo", clientInfo),
  key("envelope", "io.modelcontextprotocol/clientCapabilities", capabilities),
  key("envelope", "io.modelcontextprotocol/logLevel", of<unknown>("debug", "loud", 1)),
  key("envelope", "progressToken", fc.oneof(anyValue, fc.nat())),
  key("envelope", "__proto__", anyValue),
  key("envelope", "example.com/other", anyValue),
  of<Change>(
    (draft) => (draft.text = (message) => `\uFEFF${JSON.stringify(message)}`),
    (draft) => (draft.text = (message) => JSON.stringify([message])),
    (draft) => (draft.text = (message) => ` ${JSON.stringify(message, null, 2)}\n`),
    (draft) => (draft.text = (message) => JSON.stringify(message).slice(0, -1)),
    (draft) => (draft.text = (message) => JSON.stringify(message).replace('"id"', '"id":3,"id"')),
    (draft) => (draft.text = (message) => JSON.stringify(message) + " ".repeat(70_000)),
    (draft) => (draft.text = (message) => JSON.stringify(message).replace('"_meta":{', `"_meta":{"deep":${deep},`)),
    (draft) =>
      (draft.text = (message) => JSON.stringify(message).replace('"arguments":{', `"arguments":{"d":${deep},`)),
    (draft) => (draft.text = () => ""),
    (draft) => (draft.path = "/mcp/"),
    (draft) => (draft.path = "/mcp?x=1"),
    (draft) => (draft.path = "/other"),
    (draft) => (draft.method = "PUT"),
    (draft) => (draft.method = "DELETE"),
  ),
);

/** The request after these changes. */
export function changed({ headers, body }: Sent, changes: readonly Change[]): Sent {
  const message = JSON.parse(body) as Draft["message"];
  const params = message.params as Record<string, unknown>;
  const envelope = params._meta as Record<string, unknown>;
  const draft: Draft = {
    ...{ message, params, envelope, text: JSON.stringify, path: "/mcp", method: "POST" },
    headers: headers.map(([name, value]): [string, string] => [name, value]),
  };
  for (const change of changes) change(draft);
  return { path: draft.path, method: draft.method, headers: draft.headers, body: draft.text(draft.message) };
}
