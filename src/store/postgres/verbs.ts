import type { Effect } from "./connections.ts";

/** The verbs' functions, how many parameters each takes after the instant that counts as now, and what it does. */
const functions = {
  create_task: [16, "repeats"],
  create_once: [19, "repeats"],
  answer: [5, "repeats"],
  send: [3, "repeats"],
  request_cancel: [3, "repeats"],
  claim: [10, "acts"],
  claim_again: [2, "repeats"],
  next_due: [0, "reads"],
  renew: [5, "repeats"],
  start_step: [3, "repeats"],
  record_step: [6, "repeats"],
  set_status: [4, "repeats"],
  park: [11, "acts"],
  finish: [5, "acts"],
  release: [5, "acts"],
  sweep: [2, "acts"],
  purge: [2, "acts"],
} as const satisfies Record<string, readonly [parameters: number, effect: Effect]>;

const columns = {
  claim: "now, changed, (claimed).*",
  claim_again: "now, changed, (claimed).*",
} as const;

/** A verb's name, which is that of its function. */
export type Verb = keyof typeof functions | "get" | "journal" | "list" | "census" | "secret" | "page";

/** What a verb does when its statement is carried out. */
export function effectOf(verb: Verb): Effect {
  if (verb === "secret") return "repeats";
  return verb in functions ? functions[verb as keyof typeof functions][1] : "reads";
}

/** The statement of each verb, on the tables of a schema (a quoted name). */
export function createVerbs(schema: string): Readonly<Record<Verb, string>> {
  const texts = Object.entries(functions).map(([name, [count]]) => {
    const parameters = Array.from({ length: count + 1 }, (_, n) => `$${n + 1}`).join(", ");
    const wanted = name in columns ? columns[name as keyof typeof columns] : "*";
    return [name, `SELECT ${wanted} FROM ${schema}.${name}(${parameters})`] as const;
  });
  return {
    ...(Object.fromEntries(texts) as Record<keyof typeof functions, string>),
    // The most frequent one: written out, it is five times cheaper than by the function that other verbs use. Unknown and
    // foreign ids take the same way.
    get: `
      SELECT seen.*, CASE
        WHEN "purgeAt" <= coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) THEN 'expired'
        WHEN seq IS NOT NULL THEN 'here'
        WHEN EXISTS (SELECT FROM ${schema}.tombstone WHERE id = $2 AND owner = $3) THEN 'expired'
      END AS found
      FROM (VALUES (1)) AS one LEFT JOIN ${schema}.seen ON id = $2 AND owner = $3`,
    // The fence and what it guards, of one moment. No row: the lease is lost. The instant plays no part.
    journal: `
      SELECT journal.* FROM ${schema}.task
      JOIN ${schema}.activation ON activation.task = task.seq AND activation.state = 'leased'
      JOIN ${schema}.journal ON journal.seq = task.seq
      WHERE task.id = $2 AND task.epoch = $3 AND ($1::bigint IS NULL OR true)`,
    // The first value stays; a write of no effect, so that it is returned in either case.
    secret: `
      INSERT INTO ${schema}.secret AS kept (name, value)
      SELECT $2, $3 WHERE $1::bigint IS NULL OR true
      ON CONFLICT (name) DO UPDATE SET value = kept.value RETURNING kept.value`,
    // Along the index of owners, however many tasks others have.
    page: `
      SELECT * FROM ${schema}.seen
      WHERE owner = $2 AND ("createdAt", id) < ($3::bigint, $4)
        AND ("purgeAt" IS NULL
          OR "purgeAt" > coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))
      ORDER BY "createdAt" DESC, id DESC LIMIT $5`,
    // One statement with every filter: an absent one is null. Walks the tasks from the newest and stops at the limit.
    list: `
      SELECT * FROM ${schema}.seen
      WHERE ($2::text IS NULL OR status = $2)
        AND ($3::text IS NULL OR tool = $3)
        AND ($4::text IS NULL OR owner = $4)
        AND ($5::text IS NULL OR seq < (SELECT seq FROM ${schema}.task WHERE id = $5))
        AND ($1::bigint IS NULL OR true)
      ORDER BY seq DESC LIMIT $6`,
    // Both counts of one moment: unfinished tasks, and what waits since its last visible change or its timer's ring.
    census: `
      WITH instant AS (
        SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
      )
      SELECT tool AS name, status, count(*)::integer, NULL::bigint AS "oldestMs"
      FROM ${schema}.task WHERE finished_at IS NULL GROUP BY tool, status
      UNION ALL
      SELECT activation.queue, NULL, count(*)::integer, max(now - greatest(due, updated_at))
      FROM instant, ${schema}.activation JOIN ${schema}.task ON seq = activation.task
      WHERE state = 'ready' OR state = 'delayed' AND due <= now
      GROUP BY activation.queue`,
  };
}
