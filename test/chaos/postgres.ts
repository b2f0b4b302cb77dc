import { randomBytes } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import pg from "pg";
import { startServer } from "../postgres/server.ts";
import type { Blow, Database, Databases } from "./database.ts";
import { openLine, type Line } from "./line.ts";

const first: readonly Blow[] = [
  "kill",
  "crash",
  "freeze",
  "mute",
  "front",
  "stall",
  "freezeFront",
  "cut",
  "drain",
  "crash",
  "stall",
  "terminate",
  "freeze",
  "mute",
];

const odds: Readonly<Partial<Record<Blow, number>>> = {
  kill: 0.2,
  freeze: 0.16,
  drain: 0.07,
  all: 0.02,
  front: 0.08,
  freezeFront: 0.07,
  cut: 0.07,
  mute: 0.12,
  stall: 0.11,
  terminate: 0.03,
  crash: 0.07,
};

const int8 = 20;
const types = new pg.TypeOverrides();
types.setTypeParser(int8, Number);

/** Indices and tables that don't fit each other, by the server's own checker: from 17 on also what is there twice. */
const damage = (major: number) => `
  SELECT relname AS name, bt_index_check(indexrelid, true${major < 17 ? "" : ", true"})::text AS found
  FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
  WHERE relnamespace = 'mcp_tasks'::regnamespace AND relkind = 'i'`;

/**
 * Rounds on databases of one server, two front ends each, every process with a network of its own that can break. The
 * server is the one of the given URL, or, for `null`, one of our own, which crashes, too.
 */
export async function postgresDatabases(given: string | null): Promise<Databases> {
  const own = given === null ? await startServer() : null;
  const server = new URL(own?.url ?? given!);
  const possible = (blow: Blow) => blow !== "crash" || own !== null;

  async function ask<R>(database: string | null, text: string, values: readonly unknown[] = []): Promise<R[]> {
    const there = new URL(server);
    if (database !== null) there.pathname = database;
    const client = new pg.Client({ connectionString: there.href, options: "-c search_path=mcp_tasks,public", types });
    client.on("error", () => {});
    await client.connect();
    try {
      return (await client.query(text, [...values])).rows as R[];
    } finally {
      await client.end().catch(() => {});
    }
  }

  async function fresh(): Promise<Database> {
    const name = `chaos_${randomBytes(6).toString("hex")}`;
    await ask(null, `CREATE DATABASE ${name}`);
    const lines: Line[] = [];
    return {
      fronts: 2,
      blows: {
        first: first.filter(possible),
        odds: Object.fromEntries(Object.entries(odds).filter(([blow]) => possible(blow as Blow))),
      },
      async connect() {
        const line = await openLine(server.hostname, Number(server.port || 5432));
        lines.push(line);
        const address = new URL(server);
        address.host = `127.0.0.1:${line.port}`;
        address.pathname = name;
        return { address: address.href, line };
      },
      query: (text) => ask(name, text),
      async checkIntegrity() {
        await ask(name, "CREATE EXTENSION amcheck");
        const [version] = await ask<{ server_version_num: string }>(name, "SHOW server_version_num");
        const major = Math.floor(Number(version?.server_version_num) / 10_000);
        return await ask(name, damage(major)).then(
          () => "ok",
          (thrown: unknown) => (thrown as Error).message,
        );
      },
      async terminate() {
        await ask(
          null,
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name LIKE 'mcp-tasks%'",
          [name],
        );
      },
      async crash(awayMs) {
        await own?.kill();
        await pause(awayMs);
        await own?.start();
      },
      async [Symbol.asyncDispose]() {
        for (const line of lines) await line[Symbol.asyncDispose]();
        // A server that a round left dead holds nothing up.
        await ask(null, `DROP DATABASE ${name} WITH (FORCE)`).catch(() => {});
      },
    };
  }

  return {
    fresh,
    async [Symbol.asyncDispose]() {
      await own?.[Symbol.asyncDispose]();
    },
  };
}
