import { cpus } from "node:os";
import { parseArgs } from "node:util";
import type { Aim, Benchmark, Result } from "./benchmark.ts";

/**
 * `npm run bench [-- NAME…] [--json]`: runs benchmarks one after the other and prints what they found: a table, or with
 * `--json` one line for each, `{name, machine, versions, rows, aims}`. It exits with 0 whether or not aims are met.
 *
 * A new one is a file beside this that exports a `Benchmark`, and a line here. It ends within four minutes.
 */
const benchmarks: Readonly<Record<string, () => Promise<Benchmark>>> = {
  cancel: async () => (await import("./cancel.ts")).cancel,
  create: async () => (await import("./create.ts")).create,
  economy: async () => (await import("./economy.ts")).economy,
  engine: async () => (await import("./engine.ts")).engine,
  engines: async () => (await import("./engines.ts")).engines,
  held: async () => (await import("./held.ts")).held,
  listen: async () => (await import("./listen.ts")).listen,
  notify: async () => (await import("./notify.ts")).notify,
  poll: async () => (await import("./poll.ts")).poll,
  queue: async () => (await import("./queue.ts")).queue,
  resume: async () => (await import("./resume.ts")).resume,
  size: async () => (await import("./size.ts")).size,
  start: async () => (await import("./start.ts")).start,
  telemetry: async () => (await import("./telemetry.ts")).telemetry,
  waiting: async () => (await import("./waiting.ts")).waiting,
};

const { values, positionals } = parseArgs({ allowPositionals: true, options: { json: { type: "boolean" } } });
const unknown = positionals.filter((name) => !Object.hasOwn(benchmarks, name));
if (unknown.length > 0) {
  console.error(`No such benchmark: ${unknown.join(", ")}. There are: ${Object.keys(benchmarks).join(", ")}.`);
  process.exit(2);
}
const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? "unknown"}`;

for (const [name, load] of Object.entries(benchmarks)) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  const { rows, aims, versions: others } = await (await load())();
  const versions = { node: process.versions.node, sqlite: process.versions.sqlite ?? "none", ...others };
  if (values.json === true) console.log(JSON.stringify({ name, machine, versions, rows, aims }));
  else print(name, versions, { rows, aims });
}

function print(name: string, versions: Readonly<Record<string, string>>, { rows, aims }: Result): void {
  const used = Object.entries(versions).map(([program, version]) => `${program} ${version}`);
  console.log(`\n${name} (${machine}; ${used.join(", ")})`);
  for (const line of table(rows)) console.log(line);
  console.log();
  for (const aim of aims) console.log(inWords(aim));
}

/** Lines of columns; numbers stand at the right. A row that was not measured has fewer of them. */
function table(rows: Result["rows"]): string[] {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const text = (row: Result["rows"][number], column: string) =>
    typeof row[column] === "number" ? row[column].toLocaleString("en") : (row[column] ?? "");
  const widths = columns.map((column) => Math.max(column.length, ...rows.map((row) => text(row, column).length)));
  const isNumber = columns.map((column) => rows.some((row) => typeof row[column] === "number"));
  const line = (cells: readonly string[]) =>
    cells.map((cell, n) => (isNumber[n] ? cell.padStart(widths[n] ?? 0) : cell.padEnd(widths[n] ?? 0))).join("  ");
  return [line(columns), ...rows.map((row) => line(columns.map((column) => text(row, column))))].map(
    (one) => `  ${one.trimEnd()}`,
  );
}

function inWords({ name, aim, value, met }: Aim): string {
  return `${met ? "met    " : "not met"}  ${name}: ${value ?? "not measured"} (${aim})`;
}
