import { fileURLToPath } from "node:url";
import { StreamableHTTPClientTransport, type Transport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, beforeAll } from "vitest";
import { startFixture, type Fixture } from "../fixture/start.ts";

/** The two ways to a server that the protocol has. */
export const channels = ["http", "stdio"] as const;
export type Channel = (typeof channels)[number];

export const root = fileURLToPath(new URL("../..", import.meta.url));

/** Clients are told to ask again soon: how long they take is not what is tested here. */
const flags = ["--poll", "100"];

/** How a stdio client starts the fixture: one server for one client, on a store of its own. */
export const stdioServer = {
  command: process.execPath,
  args: ["--conditions=mcp-tasks-dev", "test/fixture/main.ts", "--stdio", ...flags],
  cwd: root,
};

/** Runs the fixture over HTTP for as long as the tests of a file take. Returns how to reach it, once they run. */
export function httpServer(): () => string {
  let running: Fixture | undefined;
  beforeAll(async () => {
    running = await startFixture(flags);
  });
  afterAll(async () => await running?.[Symbol.asyncDispose]());
  return () => running!.url;
}

/** A transport of the official SDK, as it comes. A stdio one starts its server. */
export function openTransport(channel: Channel, url: string): Transport {
  return channel === "http"
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ ...stdioServer, stderr: "inherit" });
}
