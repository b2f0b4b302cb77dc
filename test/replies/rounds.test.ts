import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client, StreamableHTTPClientTransport, type Transport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, describe, expect, test } from "vitest";
import { startFixture, type Fixture } from "../fixture/start.ts";
import { everything, wire, withoutTasks, type Fields, type Wire } from "../wire/client.ts";
import { stdioWire } from "../wire/stdio.ts";

/** The official client, as it comes, against a server in a process of its own: what its user sees of a long tool. */

const fixture = fileURLToPath(new URL("../fixture/main.ts", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-replies-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Short holds: what takes a second takes several rounds. */
const flags = (name: string, ...more: string[]) => ["--db", join(folder, `${name}.db`), "--hold", "300", ...more];
const stdioArgs = (name: string) => ["--conditions=mcp-tasks-dev", fixture, "--stdio", ...flags(name)];

const info = { name: "stock", version: "1" };
const modern = { versionNegotiation: { mode: { pin: "2026-07-28" } } } as const;
const declaring = { elicitation: { form: {} } };

interface Connected extends AsyncDisposable {
  readonly client: Client;
  readonly asked: string[];
}

/** A client that says yes to whatever it is asked, after `meanwhile`. */
async function connect(transport: Transport, meanwhile = async () => {}): Promise<Connected> {
  const client = new Client(info, { capabilities: declaring, ...modern });
  const asked: string[] = [];
  client.setRequestHandler("elicitation/create", async ({ params }) => {
    asked.push(params.message);
    await meanwhile();
    return { action: "accept", content: { confirm: true } };
  });
  await client.connect(transport);
  return { client, asked, [Symbol.asyncDispose]: () => client.close() };
}

async function over(channel: string, server: Fixture): Promise<Connected> {
  const transport =
    channel === "HTTP"
      ? new StreamableHTTPClientTransport(new URL(server.url))
      : new StdioClientTransport({ command: process.execPath, args: stdioArgs("stdio"), stderr: "inherit" });
  return await connect(transport);
}

describe.each(["HTTP", "stdio"])("a client of 2026-07-28 without the extension, over %s", (channel) => {
  test("gets the plain result of a call that outlasts several holds", async () => {
    await using server = await startFixture(flags("http"));
    await using connected = await over(channel, server);
    const rounds: (string | undefined)[] = [];
    const result = await connected.client.callTool(
      { name: "slow_compute", arguments: { seconds: 1.2, label: "sum" } },
      { onprogress: ({ message }) => void rounds.push(message) },
    );
    expect(result.content).toEqual([{ type: "text", text: "Computed sum in 1.2 s" }]);
    expect(rounds.filter((message) => message?.startsWith("Fulfilling")).length).toBeGreaterThan(1);
  });

  test("is asked in the middle, and gets the right answer", async () => {
    await using server = await startFixture(flags("http"));
    await using connected = await over(channel, server);
    const result = await connected.client.callTool({ name: "confirm_delete", arguments: { filename: "a.txt" } });
    expect(result.content).toEqual([{ type: "text", text: "Deleted a.txt" }]);
    expect(connected.asked).toEqual(["Delete a.txt?"]);
  });

  test("gets a handle of what takes longer than all its rounds, as a result in plain words", async () => {
    await using server = await startFixture(flags("http"));
    await using connected = await over(channel, server);
    await connected.client.listTools();
    const result = await connected.client.callTool({ name: "slow_compute", arguments: { seconds: 60, label: "sum" } });
    expect(result.isError).toBeUndefined();
    expect(result.content).toMatchObject([{ type: "text", text: expect.stringContaining("not the result yet") }]);
    expect(result.structuredContent).toMatchObject({ status: "working", taskId: expect.any(String) });
  });
});

test("a client that declared the extension gets the plain result of a quick call from callTool", async () => {
  await using server = await startFixture(flags("grace", "--reply-grace", "5000"));
  const capabilities = { extensions: everything.extensions };
  const client = new Client(info, { capabilities, ...modern });
  await client.connect(new StreamableHTTPClientTransport(new URL(server.url)));
  const result = await client.callTool({ name: "slow_compute", arguments: { seconds: 0, label: "sum" } });
  expect(result.content).toEqual([{ type: "text", text: "Computed sum in 0 s" }]);
  await client.close();
});

test("a server that is killed and started again while its client thinks changes nothing", async () => {
  const port = String(await freePort());
  const start = () => startFixture(flags("killed", "--port", port));
  const first = await start();
  let second: Fixture | undefined;
  const transport = new StreamableHTTPClientTransport(new URL(first.url));
  await using connected = await connect(transport, async () => {
    await first.stop("SIGKILL");
    second = await start();
  });
  const result = await connected.client.callTool({ name: "confirm_delete", arguments: { filename: "b.txt" } });
  expect(result.content).toEqual([{ type: "text", text: "Deleted b.txt" }]);
  await first[Symbol.asyncDispose]();
  await second?.[Symbol.asyncDispose]();
});

test("another replica may answer the next round", async () => {
  await using first = await startFixture(flags("replicas"));
  await using second = await startFixture(flags("replicas", "--role", "front"));
  let url = first.url;
  const turns: string[] = [];
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    fetch: (_url, init) => {
      turns.push(url === first.url ? "first" : "second");
      return fetch(url, init);
    },
  });
  await using connected = await connect(transport, async () => void (url = second.url));
  const result = await connected.client.callTool({ name: "confirm_delete", arguments: { filename: "c.txt" } });
  expect(result.content).toEqual([{ type: "text", text: "Deleted c.txt" }]);
  expect(turns.at(-1)).toBe("second");
});

test("over stdio, a server that follows a killed one takes its rounds over", async () => {
  const options = { capabilities: withoutTasks };
  const first = stdioWire(stdioArgs("again"), options);
  const args = { filename: "d.txt" };
  const { requestState, inputRequests = {} } = await rounds(first, args, {}, (round) => "inputRequests" in round);
  expect(Object.keys(inputRequests as object)).toEqual(["confirm"]);
  first.child.kill("SIGKILL");
  await first.close();
  await using second = stdioWire(stdioArgs("again"), options);
  const inputResponses = { confirm: { action: "accept", content: { confirm: true } } };
  const ended = await rounds(second, args, { requestState, inputResponses }, (round) => "content" in round);
  expect(ended).toMatchObject({ content: [{ text: "Deleted d.txt" }] });
});

/** Calls again, as long as the work takes, until an answer is as wanted. */
async function rounds(
  { request }: Pick<Wire, "request">,
  args: object,
  more: object,
  wanted: (round: Fields) => boolean,
): Promise<Fields> {
  for (let n = 0, next = more; n < 20; n++) {
    const { body } = await request("tools/call", { name: "confirm_delete", arguments: args, ...next });
    const round = body.result ?? {};
    if (wanted(round)) return round;
    next = { requestState: round.requestState };
  }
  throw new Error("twenty rounds were not enough");
}

test("an older client's call is held, and gets a handle of what takes longer", async () => {
  await using server = await startFixture(flags("legacy"));
  const client = new Client(info, { versionNegotiation: { mode: "legacy" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(server.url)));
  const quick = await client.callTool({ name: "slow_compute", arguments: { seconds: 0, label: "a" } });
  expect(quick.content).toEqual([{ type: "text", text: "Computed a in 0 s" }]);
  const slow = await client.callTool({ name: "slow_compute", arguments: { seconds: 60, label: "b" } });
  expect(slow.structuredContent).toMatchObject({ status: "working" });
  const { taskId } = slow.structuredContent as { taskId: string };
  expect((await wire(server.url).get(taskId)).body.result).toMatchObject({ taskId, status: "working" });
  await client.close();
});

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
