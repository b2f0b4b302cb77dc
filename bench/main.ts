import { cpus } from "node:os";
import { parseArgs } from "node:util";
import type { Benchmark, Result } from "./benchmark.ts";
import { queue } from "./queue.ts";
import { resume } from "./resume.ts";
import { waiting } from "./waiting.ts";

/** `npm run bench [-- NAME…] [--json]`: runs benchmarks one after the other and prints what they found. */
const benchmarks: Readonly<Record<string, Benchmark>> = { queue, resume, waiting };

const { values, positionals } = parseArgs({ allowPositionals: true, options: { json: { type: "boolean" } } });
const unknown = positionals.filter((name) => !(name in benchmarks));
if (unknown.length > 0) {
  console.error(`No such benchmark: ${unknown.join(", ")}. There are: ${Object.keys(benchmarks).join(", ")}.`);
  process.exit(2);
}
const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? "unknown"}`;
const versions = { node: process.version, sqlite: process.versions.sqlite ?? "none" };

for (const [name, run] of Object.entries(benchmarks)) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  const result = await run();
  if (values.json === true) console.log(JSON.stringify({ name, machine, versions, ...result }));
  else print(name, result);
}

function print(name: string, { rows, aims }: Result): void {
  console.log(`\n${name} (${machine}, Node ${versions.node}, SQLite ${versions.sqlite})`);
  console.table(rows);
  for (const { aim, value, met } of aims) console.log(`${met ? "met    " : "not met"}  ${aim}: ${value}`);
}
