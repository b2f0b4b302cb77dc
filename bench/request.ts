import { capabilitiesKey, tasksExtension, tasksProtocol } from "../src/protocol/capabilities.ts";
import { exchange, type Target } from "./load.ts";

/** A request of protocol 2026-07-28 to a server of this machine. */
export interface McpRequest {
  readonly url: string;
  readonly method: string;
  /** What the method is about: a tool's name or a task's id. */
  readonly name: string;
  readonly params: Readonly<Record<string, unknown>>;
  /** Sent in one chunk of untold length. */
  readonly chunked?: boolean;
}

const meta = {
  "io.modelcontextprotocol/protocolVersion": tasksProtocol,
  "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
  [capabilitiesKey]: { elicitation: {}, extensions: { [tasksExtension]: {} } },
};

/** The request as text, and where it goes. */
export function inText({ url, method, name, params, chunked = false }: McpRequest) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: meta } });
  const bytes = Buffer.byteLength(body);
  const { host, port, pathname } = new URL(url);
  const lines = [
    `POST ${pathname} HTTP/1.1`,
    `host: ${host}`,
    "accept: application/json, text/event-stream",
    "content-type: application/json",
    `mcp-protocol-version: ${tasksProtocol}`,
    `mcp-method: ${method}`,
    `mcp-name: ${name}`,
    chunked ? "transfer-encoding: chunked" : `content-length: ${bytes}`,
    "",
    chunked ? `${bytes.toString(16)}\r\n${body}\r\n0\r\n\r\n` : body,
  ];
  return { port: Number(port), request: lines.join("\r\n") };
}

/** With the length of its answers, as one of them shows. */
export async function sized({ port, request }: ReturnType<typeof inText>): Promise<Target> {
  const { head, body } = await exchange(port, request);
  return { port, request, answerBytes: Buffer.byteLength(head) + 4 + Buffer.byteLength(body) };
}
