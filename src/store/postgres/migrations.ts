import { readdirSync, readFileSync } from "node:fs";
import type { ClientBase } from "pg";
import { TaskError } from "../../errors.ts";

/** The same way up from src/ and from dist/: both lie beside sql/ in the package. */
const folder = new URL("../../../sql/postgres/", import.meta.url);

/** A migration of large tables, or of another replica, may take its time. */
const patienceMs = 600_000;

/**
 * Sees to it that the schema (a quoted name) is what this code needs. Replicas that start together take turns. Throws
 * `STORE_NEWER`, or `STORE_UNREADABLE` where something is missing and `allowed` is false.
 */
export async function migrate(client: ClientBase, schema: string, allowed: boolean): Promise<void> {
  const migrations = readMigrations();
  // Without a lock: a role that may change no schema can use one that is up to date.
  if ((await versionOf(client, schema, migrations.length)) === migrations.length) return;
  if (!allowed)
    throw new TaskError("STORE_UNREADABLE", { cause: new Error(`The schema ${schema} is not up to date.`) });
  const patiently = async (text: string, values: readonly unknown[] = []) => {
    const statement = { text, values: [...values], query_timeout: patienceMs };
    await client.query(statement);
  };
  await client.query("BEGIN");
  try {
    await patiently("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [`mcp-tasks ${schema}`]);
    const version = await versionOf(client, schema, migrations.length);
    if (version === 0) {
      await client.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
      await client.query(
        `CREATE TABLE ${schema}.migration (version integer PRIMARY KEY, at timestamptz DEFAULT now())`,
      );
    }
    // Functions take this path with them, so that no session's own one leads them elsewhere.
    await client.query(`SET LOCAL search_path = ${schema}, pg_temp`);
    for (const [n, text] of migrations.entries()) {
      if (n < version) continue;
      await patiently(text);
      await client.query("INSERT INTO migration (version) VALUES ($1)", [n + 1]);
    }
    await client.query("COMMIT");
  } catch (thrown) {
    await client.query("ROLLBACK").catch(() => {});
    throw thrown;
  }
}

/** How many migrations the schema has had. Throws for one that is newer than this code. */
async function versionOf(client: ClientBase, schema: string, newest: number): Promise<number> {
  // By the catalogue itself: `to_regclass` would remember that there was no such schema before we waited for the lock.
  const { rows: tables } = await client.query(
    `SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
     WHERE nspname = (pg_catalog.parse_ident($1))[1] AND relname = 'migration'`,
    [schema],
  );
  if (tables.length === 0) return 0;
  const { rows } = await client.query(`SELECT max(version) AS version FROM ${schema}.migration`);
  const { version } = rows[0] as { version: number | null };
  if ((version ?? 0) > newest) throw new TaskError("STORE_NEWER");
  return version ?? 0;
}

/** The migrations in their order; the n-th takes a schema from version n-1 to n. */
function readMigrations(): string[] {
  const names = readdirSync(folder).filter((name) => /^\d{4}_\w+\.sql$/.test(name));
  return names.toSorted().map((name) => readFileSync(new URL(name, folder), "utf8"));
}
