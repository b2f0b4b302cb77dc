import { randomBytes } from "node:crypto";
import { Client, type Pool } from "pg";
import { inject } from "vitest";
import { postgres, type PostgresOptions } from "../../src/store/postgres/index.ts";
import type { TaskStore } from "../../src/store/store.ts";

/** The tests' database. */
export const url = inject("postgresUrl");

/** A server that somebody else brings is not ours to stop, and those of our own that we could stop may be of another version. */
export const onGivenServer = (process.env.DATABASE_URL ?? "") !== "";

const made: string[] = [];

/** The name of a schema that nobody has used. */
export function freshSchema(): string {
  const name = `test_${randomBytes(8).toString("hex")}`;
  made.push(name);
  return name;
}

export function openStore(schema: string, options: PostgresOptions = {}): TaskStore {
  return postgres(url, { schema, ...options });
}

/** Runs one statement past the store. */
export async function query<R>(text: string, values: readonly unknown[] = [], where = url): Promise<R[]> {
  const client = new Client(where);
  await client.connect();
  try {
    return (await client.query(text, [...values])).rows as R[];
  } finally {
    await client.end();
  }
}

/** A database of its own, for programs that take no schema. */
export async function freshDatabase(): Promise<{ readonly url: string; drop(): Promise<void> }> {
  const name = `test_${randomBytes(8).toString("hex")}`;
  await query(`CREATE DATABASE ${name}`);
  const there = new URL(url);
  there.pathname = `/${name}`;
  return {
    url: there.href,
    drop: async () => void (await query(`DROP DATABASE ${name} WITH (FORCE)`)),
  };
}

/** Takes every task out of a schema that a store may have made: faster than another schema. */
export async function empty(pool: Pool, schema: string): Promise<void> {
  const { rows } = await pool.query("SELECT to_regclass($1) IS NOT NULL AS made", [`${schema}.tombstone`]);
  if ((rows[0] as { made: boolean }).made)
    await pool.query(`DELETE FROM ${schema}.task; DELETE FROM ${schema}.lane; DELETE FROM ${schema}.tombstone`);
}

/** Removes what the tests of this file made. */
export async function dropSchemas(): Promise<void> {
  for (const name of made.splice(0)) await query(`DROP SCHEMA IF EXISTS ${name} CASCADE`);
}
