import { startServer, type PostgresServer } from "./server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** A database for the tests, whose role may do anything. */
    postgresUrl: string;
  }
}

let server: PostgresServer | null = null;

/** One server for all test files: that of `DATABASE_URL`, or one of our own. */
export async function setup(project: { provide: (key: "postgresUrl", value: string) => void }): Promise<void> {
  const given = process.env.DATABASE_URL ?? "";
  if (given === "") server = await startServer();
  project.provide("postgresUrl", server?.url ?? given);
}

export async function teardown(): Promise<void> {
  await server?.[Symbol.asyncDispose]();
}
