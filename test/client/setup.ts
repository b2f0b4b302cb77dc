import { Client } from "@modelcontextprotocol/client";
import { TaskClient, type TaskClientOptions } from "../../src/client/index.ts";
import type { FakeServer } from "./fake-http.ts";

/** A client connected to a scripted server; polls only, unless the test is about listening. */
export async function connected(server: FakeServer, options: TaskClientOptions = {}): Promise<TaskClient> {
  const client = new Client({ name: "test", version: "1" });
  return await new TaskClient(client, { listen: false, ...options }).connect(server.url);
}
