import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request as httpRequest, type ClientRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { capabilitiesKey } from "../../src/protocol/capabilities.ts";
import { startFixture, type Fixture } from "../fixture/start.ts";
import { everything, wire, type Fields, type Wire, type WireOptions } from "../wire/client.ts";

// Tests that run side by side hold more servers than Node expects listeners for the end of a process.
process.setMaxListeners(100);

const root = fileURLToPath(new URL("../../", import.meta.url));

/** What `node` is started with to run a program of the test folder unbuilt. */
export const nodeArgs = (path: string, flags: readonly string[]) => [
  "--conditions=mcp-tasks-dev",
  join(root, "test", path),
  ...flags,
];

/** A folder that goes away with the test. */
export function folder() {
  const path = mkdtempSync(join(tmpdir(), "mcp-tasks-cases-"));
  return {
    path,
    file: (name: string) => join(path, name),
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true, maxRetries: 3 }),
  };
}

/** A process of the fixture server, and a client of it. */
export interface Program extends Fixture {
  readonly wire: Wire;
}

/** Starts the fixture server and waits until it is ready. */
export async function program(flags: readonly string[], options: WireOptions = {}): Promise<Program> {
  const fixture = await startFixture(flags);
  return { ...fixture, wire: wire(fixture.url, { patience: 20_000, ...options }) };
}

/** Calls `look` until it gives something, and says what it waited for if it never does. */
export async function until<T>(
  what: string,
  look: () => T | undefined | false | Promise<T | undefined | false>,
  ms = 15_000,
): Promise<T> {
  for (const end = performance.now() + ms; ;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > end) throw new Error(`After ${ms} ms still not so: ${what}`);
    await pause(15);
  }
}

/** What handlers wrote into a journal file: lines of a word, a tag and more. */
export function journal(path: string) {
  const lines = () =>
    existsSync(path)
      ? readFileSync(path, "utf8")
          .split("\n")
          .filter((line) => line !== "")
          .map((line) => line.split(" "))
      : [];
  return {
    lines,
    /** How often `word` stands there, for this tag or for any. */
    count: (word: string, tag?: string) =>
      lines().filter(([first, second]) => first === word && (tag === undefined || second === tag)).length,
  };
}

/** An answer that accepts a form: what is given, and something fitting in every other field. */
export function accept(asked: Asked | undefined, content: Record<string, unknown> = {}) {
  const { properties = {} } = (asked?.params?.requestedSchema ?? {}) as { properties?: Record<string, Field> };
  const filled = Object.entries(properties).map(([name, field]) => [name, content[name] ?? fitting(field)]);
  return { action: "accept", content: Object.fromEntries(filled) as Record<string, unknown> };
}

type Asked = NonNullable<Fields["inputRequests"]>[string];
type Field = { type: string; enum?: string[]; minLength?: number; minimum?: number };

function fitting(field: Field): unknown {
  if (field.enum !== undefined) return field.enum[0];
  if (field.type === "boolean") return true;
  return field.type === "string" ? "x".repeat(field.minLength ?? 1) : (field.minimum ?? 1);
}

/** The body and the headers of a request, for tests that send it their own way. */
export function rawRequest(method: string, params: Record<string, unknown>, id: string | number = 1) {
  const name = params.taskId ?? params.name;
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "cases", version: "1" },
    [capabilitiesKey]: everything,
  };
  return {
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...(typeof name === "string" ? { "mcp-name": name } : {}),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta } }),
  };
}

/** Sends a request on a connection of its own, which the caller may destroy at any time. */
export function rawPost(url: string, { headers, body }: ReturnType<typeof rawRequest>): ClientRequest {
  const sent = httpRequest(url, { method: "POST", headers, agent: false });
  sent.on("error", () => {});
  sent.end(body);
  return sent;
}
