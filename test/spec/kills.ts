import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { expect } from "vitest";
import { capabilitiesKey, tasksProtocol } from "../../src/protocol/capabilities.ts";
import { startFixture } from "../fixture/start.ts";
import { everything, wire, type Message } from "../wire/client.ts";

/** What one kill left behind. */
export interface Kill {
  /** The id that came over the wire, or null if the answer was cut off before it. */
  readonly taskId: string | null;
}

/** Sends a call byte by byte over a socket of its own and kills the server at the first byte of the answer. */
async function killAtFirstByte(url: string, pid: number, label: string): Promise<Kill> {
  const { hostname, port, pathname } = new URL(url);
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: {
      name: "slow_compute",
      arguments: { seconds: 0, label },
      _meta: {
        "io.modelcontextprotocol/protocolVersion": tasksProtocol,
        "io.modelcontextprotocol/clientInfo": { name: "killer", version: "1" },
        [capabilitiesKey]: everything,
      },
    },
  });
  const head = [
    `POST ${pathname} HTTP/1.1`,
    `Host: ${hostname}:${port}`,
    "Connection: close",
    "Content-Type: application/json",
    "Accept: application/json, text/event-stream",
    `MCP-Protocol-Version: ${tasksProtocol}`,
    "Mcp-Method: tools/call",
    "Mcp-Name: slow_compute",
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  const socket = connect(Number(port), hostname);
  socket.on("error", () => {});
  let text = "";
  socket.on("data", (chunk) => {
    if (text === "") process.kill(pid, "SIGKILL");
    text += chunk.toString();
  });
  socket.write(`${head.join("\r\n")}\r\n\r\n${body}`);
  await once(socket, "close");
  const json = /\{.*\}/s.exec(text.slice(text.indexOf("\r\n\r\n")))?.[0];
  if (json === undefined) return { taskId: null };
  const { result } = JSON.parse(json.split(/\r?\n/)[0]!) as Message;
  expect(result?.resultType).toBe("task");
  return { taskId: result?.taskId ?? null };
}

/**
 * Creates a task and kills the server at the first byte of the answer, so many times in a row on one file; each new
 * process has to know every task that was ever acknowledged. Resolves with how many were.
 */
export async function killRepeatedly(folder: string, name: string, rounds: number): Promise<number> {
  const db = join(folder, `${name}.db`);
  const acknowledged: string[] = [];
  for (let round = 0; round <= rounds; round++) {
    await using server = await startFixture(["--db", db, "--role", "front"]);
    const reader = wire(server.url);
    const replies = await Promise.all(acknowledged.map((taskId) => reader.get(taskId)));
    expect(replies.map(({ body }) => body.result?.taskId)).toEqual(acknowledged);
    if (round === rounds) break;
    const { taskId } = await killAtFirstByte(server.url, server.pid, `${name} ${round}`);
    expect(await server.exited).toEqual({ code: null, signal: "SIGKILL" });
    if (taskId !== null) acknowledged.push(taskId);
  }
  await using worker = await startFixture(["--db", db]);
  const reader = wire(worker.url);
  for (const taskId of acknowledged) expect((await reader.until(taskId)).status).toBe("completed");
  return acknowledged.length;
}
