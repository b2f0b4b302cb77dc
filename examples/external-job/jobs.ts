/**
 * A stand-in for somebody else's job API: a render farm in a process of its own, which can be killed. It knows nothing
 * of MCP. Frames take no work here, only time; all the rest is what such an API does.
 */
import { mkdirSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout } from "node:timers/promises";
import { parseArgs } from "node:util";
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { z } from "zod";

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "3001" },
    data: { type: "string", default: ".demo/external-job" },
    /** Milliseconds until it says that it has accepted a job. */
    delay: { type: "string", default: "0" },
  },
});
const frameMs = 20;
const callAgainMs = 500;
const newJob = z.object({
  scene: z.string().min(1),
  frames: z.int().min(1).max(10_000),
  callback: z.url({ protocol: /^https?$/ }).optional(),
  labels: z.record(z.string(), z.string()).default({}),
});

interface JobRow {
  readonly id: string;
  readonly body: string;
  readonly requests: number;
  readonly frames: number;
  readonly labels: string;
  readonly callback: string | null;
  readonly status: "running" | "done" | "failed" | "cancelled";
  readonly started: number;
  readonly ended: number | null;
}

mkdirSync(values.data, { recursive: true });
const db = new DatabaseSync(path.join(values.data, "jobs.db"));
db.exec(`CREATE TABLE IF NOT EXISTS job (
  id TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, body TEXT NOT NULL, requests INTEGER NOT NULL, scene TEXT NOT NULL,
  frames INTEGER NOT NULL, labels TEXT NOT NULL, callback TEXT, status TEXT NOT NULL, started INTEGER NOT NULL,
  due INTEGER NOT NULL, -- when it is done, if nothing else happens
  ended INTEGER,
  call_at INTEGER -- when to tell the callback that it has ended; null: not yet, or no more
) STRICT`);
const sql = {
  // The same key gives the same job, however often it is asked for.
  start: db.prepare(`
    INSERT INTO job SELECT 'job-' || (count(*) + 1), :key, :body, 1, :scene, :frames, :labels, :callback, 'running',
      :now, :due, NULL, NULL FROM job WHERE true
    ON CONFLICT (key) DO UPDATE SET requests = requests + 1 RETURNING *`),
  find: db.prepare("SELECT * FROM job WHERE id = :id"),
  list: db.prepare("SELECT * FROM job WHERE :status IS NULL OR status = :status"),
  cancel: db.prepare(`
    UPDATE job SET status = 'cancelled', ended = :now, call_at = :now WHERE id = :id AND status = 'running'`),
  end: db.prepare(`
    UPDATE job SET status = iif(scene = 'broken', 'failed', 'done'), ended = due, call_at = due
    WHERE status = 'running' AND due <= :now`),
  toCall: db.prepare("SELECT * FROM job WHERE callback IS NOT NULL AND call_at <= :now"),
  callAt: db.prepare("UPDATE job SET call_at = :at WHERE id = :id"),
};

/** A job as the API shows it. */
function view({ id, status, frames, labels, requests, started, ended }: JobRow) {
  return {
    id,
    status,
    frame: Math.min(frames, Math.floor(((ended ?? Date.now()) - started) / frameMs)),
    frames,
    requests,
    labels: JSON.parse(labels) as Record<string, string>,
    ...(status === "done" ? { film: `https://films.example/${id}.mp4` } : {}),
    ...(status === "failed" ? { error: "The scene can't be rendered" } : {}),
  };
}
const find = (id: string) => sql.find.get({ id }) as unknown as JobRow | undefined;

const app = new Hono();

app.post("/jobs", async (context) => {
  const key = context.req.header("idempotency-key");
  const body = await context.req.text();
  const wanted = newJob.safeParse(await context.req.json().catch(() => null));
  if (key === undefined) return context.json({ error: "An Idempotency-Key is missing" }, 400);
  if (!wanted.success) return context.json({ error: z.prettifyError(wanted.error) }, 400);
  const { scene, frames, labels, callback = null } = wanted.data;
  const now = Date.now();
  const due = now + frames * frameMs;
  const given = { key, body, scene, frames, labels: JSON.stringify(labels), callback, now, due };
  const job = sql.start.get(given) as unknown as JobRow;
  if (job.body !== body) return context.json({ error: "This Idempotency-Key was used for another job" }, 422);
  console.log(`${job.id} accepted`);
  await setTimeout(Number(values.delay));
  return context.json(view(job), 201);
});

app.get("/jobs", (context) => {
  const jobs = sql.list.all({ status: context.req.query("status") ?? null }) as unknown as JobRow[];
  return context.json(jobs.map(view));
});

app.get("/jobs/:id", (context) => {
  const job = find(context.req.param("id"));
  return job === undefined ? context.json({ error: "No such job" }, 404) : context.json(view(job));
});

app.delete("/jobs/:id", (context) => {
  const id = context.req.param("id");
  if (sql.cancel.run({ id, now: Date.now() }).changes > 0) console.log(`${id} cancelled`);
  const job = find(id);
  return job === undefined ? context.json({ error: "No such job" }, 404) : context.json(view(job));
});

/** Says that a job has ended, until somebody has heard it or wants to hear no more. */
async function callBack(job: JobRow): Promise<void> {
  const body = JSON.stringify(view(job));
  const headers = { "content-type": "application/json" };
  const signal = AbortSignal.timeout(callAgainMs);
  const status = await fetch(job.callback!, { method: "POST", headers, body, signal }).then(
    (response) => response.status,
    () => 0,
  );
  const heard = (status >= 200 && status < 300) || status === 410;
  if (heard) sql.callAt.run({ id: job.id, at: null });
  console.log(`${job.id} callback ${heard ? "accepted" : "not accepted"}`);
}

setInterval(() => {
  const now = Date.now();
  sql.end.run({ now });
  for (const job of sql.toCall.all({ now }) as unknown as JobRow[]) {
    sql.callAt.run({ id: job.id, at: now + 2 * callAgainMs });
    void callBack(job);
  }
}, 50);

const server = serve({ fetch: app.fetch, port: Number(values.port), hostname: "127.0.0.1" }, ({ port }) =>
  console.log(`Listening on http://127.0.0.1:${port}`),
);
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => server.close(() => process.exit()));
