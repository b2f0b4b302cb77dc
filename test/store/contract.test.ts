import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, test } from "vitest";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { storeContract, type OpenStore } from "../../src/testing.ts";

const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-contract-"));
afterAll(() => rmSync(folder, { recursive: true }));

let files = 0;
const stores: [name: string, open: OpenStore][] = [
  ["SQLite in a file", ({ clock }) => sqlite(join(folder, `${files++}.db`), { clock })],
  ["SQLite in memory", ({ clock }) => sqlite(":memory:", { clock })],
];

describe.each(stores)("%s", (_, open) => {
  test.each(storeContract)("%s", (_name, run) => run(open));
});
