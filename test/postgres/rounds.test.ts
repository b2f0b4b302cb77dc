import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterEach, beforeEach, expect, test } from "vitest";
import { startFixture, type Fixture } from "../fixture/start.ts";
import { filledIn } from "../interop/forms.ts";
import { postgres } from "../../src/store/postgres/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { withoutTasks, wire } from "../wire/client.ts";
import { freshDatabase } from "./database.ts";

/** Calls of clients without tasks, held by replicas that come and go. */

let database: Awaited<ReturnType<typeof freshDatabase>>;
let store: TaskStore;
beforeEach(async () => {
  database = await freshDatabase();
  store = postgres(database.url);
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  await database.drop();
});
const tasks = () => store.list({ limit: 100 });

const flags = ["--hold", "300", "--lease", "1000", "--tokens", "ada=token"];
const replica = (): Promise<Fixture> => startFixture(["--db", database.url, ...flags]);
const outcome = (ms: number) => [{ type: "text", text: `Ada was away for ${ms} ms` }];

/** The official client, as it comes, which goes to wherever `url` says at the time. */
async function connect(url: () => string, meanwhile = async () => {}) {
  const versionNegotiation = { mode: { pin: "2026-07-28" } } as const;
  const client = new Client({ name: "stock", version: "1" }, { capabilities: withoutTasks, versionNegotiation });
  client.setRequestHandler("elicitation/create", async ({ params }) => {
    await meanwhile();
    return filledIn(params);
  });
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url()), {
      requestInit: { headers: { authorization: "Bearer token" } },
      fetch: (_url, init) => fetch(url(), init),
    }),
  );
  return { client, [Symbol.asyncDispose]: () => client.close() };
}

test("a server that is killed between two rounds is followed by another one, which goes on", async () => {
  await using first = await replica();
  await using second = await replica();
  let { url } = first;
  await using connected = await connect(
    () => url,
    async () => {
      await first.stop("SIGKILL");
      ({ url } = second);
    },
  );
  const result = await connected.client.callTool({ name: "trip", arguments: { ms: 1_000 } });
  expect(result.content).toEqual(outcome(1_000));
  expect(await tasks()).toHaveLength(1);
});

test("who leaves in the middle of a hold, and makes the call again at another replica, gets the same task", async () => {
  await using first = await replica();
  await using second = await replica();
  const options = { token: "token", capabilities: withoutTasks };
  const leave = new AbortController();
  const lost = wire(first.url, options).call("trip", { ms: 1_200 }, { signal: leave.signal });
  await expect.poll(tasks).toHaveLength(1);
  leave.abort();
  await expect(lost).rejects.toThrow();
  await using connected = await connect(() => second.url);
  const result = await connected.client.callTool({ name: "trip", arguments: { ms: 1_200 } });
  expect(result.content).toEqual(outcome(1_200));
  expect(await tasks()).toHaveLength(1);
});

test("a server that is killed in the middle of a hold takes the answer along, and not the task", async () => {
  await using first = await replica();
  await using second = await replica();
  const options = { token: "token", capabilities: withoutTasks };
  const lost = wire(first.url, options).call("trip", { ms: 1_400 });
  await expect.poll(tasks).toHaveLength(1);
  await Promise.all([first.stop("SIGKILL"), expect(lost).rejects.toThrow()]);
  await using connected = await connect(() => second.url);
  const result = await connected.client.callTool({ name: "trip", arguments: { ms: 1_400 } });
  expect(result.content).toEqual(outcome(1_400));
  expect(await tasks()).toHaveLength(1);
});
