import { once } from "node:events";
import { serve } from "@hono/node-server";
import { McpServer } from "@modelcontextprotocol/server";
import { expect, onTestFinished, test } from "vitest";
import { createTasks, taskTool } from "mcp-tasks";
import { postgres } from "mcp-tasks/postgres";
import { wire } from "../wire/client.ts";
import { freshDatabase, query } from "./database.ts";
import { believe } from "./witness-tools.ts";

const greet = taskTool({
  name: "greet",
  task: { support: "required" },
  run: (_args, { owner }) => ({ content: [{ type: "text", text: owner }] }),
});

/** The same database for an owner, whichever front end they come to. */
const shardOf = (owner: string, shards: number) => (owner.codePointAt(0) ?? 0) % shards;

test("several databases can share the owners, behind one address", async () => {
  const databases = [await freshDatabase(), await freshDatabase()];
  const shards = databases.map(({ url }) => {
    const store = postgres(url);
    const tasks = createTasks({ store, tools: [greet], owner: ({ clientId }) => clientId });
    const handler = tasks.serve(() => new McpServer({ name: "shard", version: "1" }));
    return { store, tasks, handler };
  });
  onTestFinished(async () => {
    for (const { tasks, store } of shards) {
      await tasks.close();
      await store[Symbol.asyncDispose]();
    }
    for (const database of databases) await database.drop();
  });
  for (const { tasks, store } of shards) {
    await tasks.work();
    // Its answer comes after the tables, which the other database's task doesn't wait for.
    await store.nextDue();
  }

  const server = serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const authInfo = believe(request);
      if (authInfo === undefined) return new Response(null, { status: 401 });
      return await shards[shardOf(authInfo.clientId, shards.length)]!.handler.fetch(request, { authInfo });
    },
  });
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const client = (token: string) => wire(`http://127.0.0.1:${port}/mcp`, { token });
  for (const owner of ["alice", "bob"]) {
    const id = await client(owner).start("greet");
    expect((await client(owner).until(id)).result?.content?.[0]?.text).toBe(owner);
    const where = await Promise.all(
      databases.map(async ({ url }) => (await query("SELECT FROM mcp_tasks.task WHERE id = $1", [id], url)).length),
    );
    expect(where).toEqual([0, 1].map((shard) => (shard === shardOf(owner, 2) ? 1 : 0)));
  }
  expect((await client("bob").get(await client("alice").start("greet"))).body.error?.code).toBe(-32602);
});
