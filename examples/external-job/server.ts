import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { serve } from "@hono/node-server";
import { localhostAllowedHostnames, localhostAllowedOrigins, McpServer } from "@modelcontextprotocol/server";
import { Hono } from "hono";
import { createTasks } from "mcp-tasks";
import { sqlite } from "mcp-tasks/sqlite";
import { createFarm, readJob } from "./farm.ts";
import { cancelOrphans } from "./orphans.ts";
import { jobEnded, renderTools } from "./tools.ts";

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "3000" },
    jobs: { type: "string", default: "http://127.0.0.1:3001" },
    data: { type: "string", default: ".demo/external-job" },
  },
});
mkdirSync(values.data, { recursive: true });
const hooks = `http://127.0.0.1:${values.port}/hooks`;
const secret = readSecret(path.join(values.data, "hook-secret"));
const farm = createFarm(values.jobs);
const onError = (error: unknown) => console.error(String(error));

const store = sqlite(path.join(values.data, "tasks.db"));
const tools = renderTools({ farm, callbackFor: (taskId) => `${hooks}/${taskId}/${sign(taskId)}` });
const tasks = createTasks({ store, tools, onError });
const handler = tasks.serve(() => new McpServer({ name: "render", version: "1.0.0" }), {
  allowedHosts: localhostAllowedHostnames(),
  allowedOrigins: localhostAllowedOrigins(),
});

const app = new Hono();
app.all("/mcp", ({ req }) => handler.fetch(req.raw));

/** The farm reports the end of a job. A second report changes nothing, and one that nobody waits for yet is kept. */
app.post("/hooks/:task/:signature", async ({ req, body, json }) => {
  const { task, signature } = req.param();
  if (!isSigned(task, signature)) return body(null, 404);
  const wanted = await tasks.send(task, jobEnded, readJob(await req.json()));
  return wanted ? body(null, 204) : json({ error: "The task is over" }, 410);
});

const server = serve({ fetch: app.fetch, port: Number(values.port), hostname: "127.0.0.1" }, () =>
  console.log(`Listening on http://127.0.0.1:${values.port}/mcp`),
);
await tasks.work();
const stopping = new AbortController();
const orphans = cancelOrphans({ farm, store, everyMs: 1_000, signal: stopping.signal, onError });

/** Only the farm knows the address that it was given: whoever knows a task's id can't report for its job. */
function sign(taskId: string): string {
  return createHmac("sha256", secret).update(taskId).digest("base64url");
}

function isSigned(taskId: string, signature: string): boolean {
  const [given, right] = [Buffer.from(signature), Buffer.from(sign(taskId))];
  return given.length === right.length && timingSafeEqual(given, right);
}

/** It outlives this process, as the addresses do that are made with it. */
function readSecret(file: string): string {
  if (!existsSync(file)) writeFileSync(file, randomBytes(32).toString("hex"), { mode: 0o600 });
  return readFileSync(file, "utf8");
}

async function stop(): Promise<void> {
  server.close();
  stopping.abort();
  await Promise.all([orphans, tasks.close()]);
  await store[Symbol.asyncDispose]();
  process.exit();
}
process.once("SIGINT", () => void stop());
process.once("SIGTERM", () => void stop());
