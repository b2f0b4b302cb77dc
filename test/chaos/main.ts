import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { postgresDatabases } from "./postgres.ts";
import { runRound } from "./round.ts";
import { sqliteDatabases } from "./sqlite.ts";

/**
 * Rounds of kills on real processes, and a verdict: `--rounds N --seed S [--tasks N] [--db sqlite|postgres]`. Round i has
 * the seed S + i, so that `--rounds 1` repeats one. One line of JSON comes at the end; 1 is returned if anything was not
 * right. Postgres is a server of our own, which crashes, too, or that of `DATABASE_URL`, which doesn't.
 *
 * A seed repeats the tasks, the blows and their moments, not what the machine makes of them. And killed processes are
 * not lost power: what a process gave to the kernel survives it. That a commit reaches the disk is not shown here.
 */

function usage(message: string): never {
  process.stderr.write(`chaos: ${message}\n`);
  process.exit(2);
}

function readFlags() {
  const options = {
    rounds: { type: "string", default: "1" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    tasks: { type: "string", default: "200" },
    db: { type: "string", default: "sqlite" },
  } as const;
  try {
    const { rounds, seed, tasks, db } = parseArgs({ options }).values;
    if (db !== "sqlite" && db !== "postgres") usage("--db takes sqlite or postgres");
    const numbers = [rounds, seed, tasks].map(Number);
    if (numbers.some((number) => !Number.isSafeInteger(number) || number < 0)) usage("the flags take whole numbers");
    const [roundCount = 1, firstSeed = 0, taskCount = 200] = numbers;
    return { rounds: roundCount, seed: firstSeed, tasks: taskCount, db };
  } catch (error) {
    return usage((error as Error).message);
  }
}

const { rounds, seed, tasks, db } = readFlags();
// Two front ends and three workers with more that can happen to them: more blows for the same number of tasks.
const blows = db === "sqlite" ? 16 : 24;
const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-chaos-"));
// Leaving ends the children, too.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(130));

const given = process.env.DATABASE_URL ?? "";
const databases = db === "sqlite" ? sqliteDatabases : await postgresDatabases(given === "" ? null : given);
const totals: Record<string, number> = {};
const errors: Record<string, number> = {};
const violations: string[] = [];
const began = Date.now();
for (let round = 0; round < rounds; round++) {
  const start = Date.now();
  try {
    const report = await runRound({ databases, seed: seed + round, tasks, blows, folder });
    add(totals, { ...report.counts });
    add(errors, report.errors);
    violations.push(...report.violations);
    for (const text of report.violations) process.stderr.write(`VIOLATION ${text}\n`);
    for (const story of report.stories) process.stderr.write(`${story}\n`);
    const { kills, stops, cuts, stalls, crashes, cancelled, zombieWrites } = report.counts;
    const network = db === "sqlite" ? "" : `${cuts} cuts, ${stalls} stalls, ${crashes} crashes, `;
    process.stderr.write(
      `round ${round + 1}/${rounds} seed ${seed + round}: ${Date.now() - start} ms, ${report.counts.tasks} tasks, ` +
        `${kills} kills, ${stops} stops, ${network}${cancelled} cancelled, ${zombieWrites} zombie writes refused, ` +
        `${report.violations.length === 0 ? "ok" : "NOT OK"}\n`,
    );
  } catch (thrown) {
    violations.push(`seed ${seed + round}: the round broke off: ${String(thrown)}`);
    process.stderr.write(`VIOLATION seed ${seed + round}: ${String((thrown as Error).stack)}\n`);
  }
}

await databases[Symbol.asyncDispose]();
const seconds = Math.round((Date.now() - began) / 1_000);
process.stdout.write(`${JSON.stringify({ db, rounds, seed, seconds, ...totals, errors, violations })}\n`);
if (violations.length === 0) await rm(folder, { recursive: true, force: true });
process.exitCode = violations.length === 0 ? 0 : 1;

function add(totals: Record<string, number>, more: Readonly<Record<string, number>>): void {
  for (const [name, number] of Object.entries(more)) totals[name] = (totals[name] ?? 0) + number;
}
