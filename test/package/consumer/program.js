import assert from "node:assert/strict";
import { sqlite } from "mcp-tasks/sqlite";

// Opening runs the migrations, which the package must have brought along.
await using store = sqlite(":memory:");
assert.deepEqual(await store.list({ limit: 10 }), []);
assert.equal(await store.get("no-such-task", ""), undefined);
assert.deepEqual(await store.sweep(), { timedOut: 0, cancelled: 0, purged: 0, more: false });
