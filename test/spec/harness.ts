import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll } from "vitest";
import { newTaskId } from "../../src/protocol/ids.ts";
import { tasksExtension } from "../../src/protocol/capabilities.ts";
import { startFixture, type Fixture } from "../fixture/start.ts";
import { wire, type Fields, type Wire, type WireOptions } from "../wire/client.ts";
import { stdioWire, type StdioWire } from "../wire/stdio.ts";

/** The `data` of a -32021 that asks for the extension. */
export const missingTasks = { requiredCapabilities: { extensions: { [tasksExtension]: {} } } };

/** An id of the right form that no task has. */
export const unknownId = newTaskId();

const fixture = fileURLToPath(new URL("../fixture/main.ts", import.meta.url));

/** A folder that goes when the tests of the file are over. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-spec-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** How the fixture is run as a process that speaks over its standard input and output. */
export function stdioFixture(flags: readonly string[], options?: WireOptions): StdioWire {
  return stdioWire(["--conditions=mcp-tasks-dev", fixture, "--stdio", ...flags], options);
}

/** What a file of tests speaks with. */
export interface Opened {
  readonly server: Fixture;
  readonly url: string;
  readonly http: Wire;
  readonly stdio: StdioWire;
}

/** Starts the fixture for the tests of a file, over HTTP and, with the same flags, over stdio. */
export async function open(flags: readonly string[], more: { stdio?: boolean } = {}): Promise<Opened> {
  const server = await startFixture(flags);
  const folder = temporaryFolder();
  let stdio: StdioWire | undefined;
  afterAll(async () => {
    await stdio?.close();
    await server[Symbol.asyncDispose]();
  });
  if (more.stdio !== false) stdio = stdioFixture(["--db", join(folder, "stdio.db"), ...flags]);
  return {
    server,
    url: server.url,
    http: wire(server.url),
    get stdio() {
      if (stdio === undefined) throw new Error("this fixture was opened without stdio");
      return stdio;
    },
  };
}

/** One open question, and an answer that its form takes. */
export interface Elicitation {
  readonly key: string;
  readonly message: string;
  /** Strings are `value`, everything else is what the form allows first. */
  accept(value?: string): { action: "accept"; content: Record<string, unknown> };
}

/** The open questions of a task in their order. */
export function elicitations(requests: Fields["inputRequests"] = {}): Elicitation[] {
  return Object.entries(requests).map(([key, { method, params }]) => {
    if (method !== "elicitation/create") throw new Error(`${key} is a ${method}`);
    const { properties } = params?.requestedSchema as { properties: Record<string, { type: string }> };
    return {
      key,
      message: String(params?.message),
      accept(value = "a") {
        const fields = Object.entries(properties).map(([name, { type }]) => [name, type === "boolean" ? true : value]);
        return { action: "accept", content: Object.fromEntries(fields) as Record<string, unknown> };
      },
    };
  });
}
