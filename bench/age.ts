import { Client } from "pg";
import { claim, create, owner } from "../src/store/contract/kit.ts";
import { postgres } from "../src/store/postgres/index.ts";
import { median, round } from "./benchmark.ts";

const finished = 1_000_000;
const rounds = 40;
const batch = 10;

/** What a million finished tasks do to a claim of ten and to a read: the same work in turns, with them and without. */
export async function measureAge(url: string) {
  await using young = postgres(url, { schema: "young" });
  await using old = postgres(url, { schema: "old" });
  for (const store of [young, old]) await store.nextDue();
  await fill(url);
  const times = {
    young: { claim: [] as number[], get: [] as number[] },
    old: { claim: [] as number[], get: [] as number[] },
  };
  for (let n = 0; n < rounds * 2 + 10; n++) {
    const name = n % 2 === 0 ? "young" : "old";
    const found = await measure(name === "young" ? young : old);
    // The first ones open connections and prepare statements.
    if (n < 10) continue;
    times[name].claim.push(...found.claim);
    times[name].get.push(...found.get);
  }
  const any: number[] = [];
  for (let n = 0; n < 500; n++) {
    const id = idOf(1 + Math.floor(Math.random() * finished));
    const begin = performance.now();
    await old.get(id, owner);
    any.push(performance.now() - begin);
  }
  const rows = (["young", "old"] as const).map((name) => ({
    name: `mcp-tasks, ${name === "young" ? 0 : finished.toLocaleString("en")} finished before`,
    "claim of 10 ms": round(median(times[name].claim)),
    "get ms": round(median(times[name].get), 3),
    ...(name === "old" ? { "get of any of them ms": round(median(any), 3) } : {}),
  }));
  const ratio = (what: "claim" | "get") => median(times.old[what]) / median(times.young[what]);
  return { rows, claim: ratio("claim"), get: ratio("get") };
}

async function measure(store: ReturnType<typeof postgres>) {
  const claimMs: number[] = [];
  const getMs: number[] = [];
  const time = async <T>(list: number[], work: () => Promise<T>): Promise<T> => {
    const begin = performance.now();
    const value = await work();
    list.push(performance.now() - begin);
    return value;
  };
  for (let n = 0; n < 5; n++) {
    const tasks = await Promise.all(Array.from({ length: batch }, () => create(store)));
    for (const { id } of tasks) await time(getMs, () => store.get(id, owner));
    const claims = await time(claimMs, () => claim(store, { count: batch }));
    await Promise.all(claims.map((claimed) => store.finish(claimed, { status: "completed", result: "{}" })));
    for (const { id } of tasks) await time(getMs, () => store.get(id, owner));
  }
  return { claim: claimMs, get: getMs };
}

const idOf = (n: number) => `task-${n.toString().padStart(17, "0")}`;

/** Rows as the verbs would have left them, of tasks that ended within the last day and are kept. */
async function fill(url: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query("SET search_path = old; SET synchronous_commit = off");
    await client.query(
      `WITH made AS (
        INSERT INTO task (id, owner, tool, version, queue, priority, status, created_at, updated_at, turned_at, keep_ms,
          finished_at, purge_at, rev, epoch, attempts, strikes, recovery, unwind, cancel_requested, result)
        SELECT 'task-' || lpad(n::text, 17, '0'), CASE n % 10 WHEN 0 THEN $2 ELSE 'owner ' || n % 1000 END, 'build', '',
          'default', 0, 'completed', at, at + 50, at + 50, 604800000, at + 50, at + 50 + 604800000, 2, 1, 3, 1, 'retry',
          false, false, '{"content":[{"type":"text","text":"done"}]}'
        FROM generate_series(1, $1::int) AS n
        CROSS JOIN LATERAL (SELECT floor(extract(epoch FROM now()) * 1000)::bigint - 86400000 + n * 80 AS at) AS made
        RETURNING seq
      ) INSERT INTO call (task, client, auth, answers, args) SELECT seq, '{}', 'null', '{}', '{}' FROM made`,
      [finished, owner],
    );
    await client.query("VACUUM (ANALYZE) task");
    await client.query("VACUUM (ANALYZE) call");
  } finally {
    await client.end();
  }
}
