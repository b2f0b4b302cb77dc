import { execFile } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { Client } from "pg";
import { packageName, startServer } from "./server.ts";

/**
 * `npm run postgres:versions -- 14 15 16 17 [-- TESTS…]`: brings the newest release of each of these versions of
 * Postgres into a folder for temporary files, and runs the tests of the Postgres store on it. A line for each, and what
 * failed; ends with 1 if something did.
 */

const run = promisify(execFile);
const root = path.resolve(import.meta.dirname, "../..");
const cache = path.join(tmpdir(), "mcp-tasks-postgres-versions");

interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly testResults: readonly {
    readonly message: string;
    readonly assertionResults: readonly { status: string; fullName: string; failureMessages: readonly string[] }[];
  }[];
}

/** Installs the newest release, unless it is there already, and gives the folder. */
async function install(major: string, releases: readonly string[]): Promise<string> {
  const release = releases.findLast((name) => name.startsWith(`${major}.`));
  if (release === undefined) throw new Error(`${packageName} has no release of Postgres ${major}.`);
  const folder = path.join(cache, release);
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, "package.json"), '{ "private": true }\n');
  const quietly = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"];
  await run("npm", ["install", ...quietly, `${packageName}@${release}`], { cwd: folder });
  return folder;
}

/** What the server itself says that it is. */
async function versionOf(folder: string): Promise<string> {
  await using server = await startServer({}, null, folder);
  const client = new Client(server.url);
  await client.connect();
  const { rows } = await client.query<{ version: string }>("SELECT current_setting('server_version') AS version");
  await client.end();
  return rows[0]?.version ?? "unknown";
}

/** Runs the tests on servers from that folder. True: all passed. */
async function tryOut(folder: string, tests: readonly string[]): Promise<boolean> {
  const version = await versionOf(folder);
  const began = performance.now();
  const file = path.join(folder, "report.json");
  await rm(file, { force: true });
  const { DATABASE_URL: _, ...environment } = process.env;
  const flags = ["run", "--project", "postgres", "--reporter=json", `--outputFile=${file}`];
  // A failure shows in the report.
  const ran = await run(path.join(root, "node_modules/.bin/vitest"), [...flags, ...tests], {
    cwd: root,
    env: { ...environment, POSTGRES_PACKAGES: folder },
    maxBuffer: 64 << 20,
  }).catch((thrown: { stderr: string }) => thrown);
  const text = await readFile(file, "utf8").catch(() => {
    throw new Error(`The tests did not run: ${ran.stderr}`);
  });
  const { numPassedTests, numFailedTests, numPendingTests, testResults } = JSON.parse(text) as Report;
  const seconds = Math.round((performance.now() - began) / 1_000);
  const faults = testResults.flatMap(({ message, assertionResults }) => [
    ...(message === "" ? [] : [message]),
    ...assertionResults
      .filter(({ status }) => status === "failed")
      .map(({ fullName, failureMessages }) => `${fullName}\n${failureMessages.join("\n")}`),
  ]);
  console.log(
    `Postgres ${version}: ${numPassedTests} passed, ${numFailedTests} failed, ${numPendingTests} skipped, ${seconds} s`,
  );
  for (const fault of faults) console.log(fault.replaceAll(/^/gm, "  "));
  return faults.length === 0 && numFailedTests === 0 && numPassedTests > 0;
}

const words = process.argv.slice(2).filter((word) => word !== "--");
const majors = words.filter((word) => /^\d+$/.test(word));
const tests = words.filter((word) => !majors.includes(word));
if (majors.length === 0) {
  console.error("Name the versions to try: npm run postgres:versions -- 14 15 16 17");
  process.exit(2);
}
const { stdout } = await run("npm", ["view", packageName, "versions", "--json"]);
const releases = JSON.parse(stdout) as string[];
for (const major of majors) {
  const folder = await install(major, releases);
  if (!(await tryOut(folder, tests))) process.exitCode = 1;
}
