/**
 * Runs the official conformance suite against the fixture server: the scenarios that mcp-tasks claims, or with `--all`
 * every server scenario there is: most of the others ask for tools, prompts and resources that the fixture doesn't have,
 * and only a claimed one that fails makes the run fail. With `--url URL`, against a server that runs already. With
 * `--sdk`, each request reaches the server in a form that it leaves to the SDK, so that this is the one that answers.
 * `npm run conformance`.
 */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

interface Check {
  id: string;
  status: "SUCCESS" | "FAILURE" | "WARNING" | "SKIPPED" | "INFO";
  description: string;
  errorMessage?: string;
}

interface Row {
  scenario: string;
  passed: number;
  failed: number;
  skipped: number;
  failures: string[];
}

const root = fileURLToPath(new URL("../../", import.meta.url));

/** What the package claims: the Tasks extension, and the two rules on HTTP that its own server is responsible for. */
const claimed = [
  "tasks-lifecycle",
  "tasks-capability-negotiation",
  "tasks-wire-fields",
  "tasks-request-state-removal",
  "tasks-mrtr-input",
  "tasks-request-headers",
  "tasks-dispatch-and-envelope",
  "tasks-required-task-error",
  "tasks-mrtr-composition",
  "tasks-status-notifications",
  "http-header-validation",
  "dns-rebinding-protection",
];

const { values } = parseArgs({
  options: { all: { type: "boolean", default: false }, url: { type: "string" }, sdk: { type: "boolean" } },
});
const fixture =
  values.url === undefined
    ? await start(["test/fixture/main.ts", "--port", "0"])
    : { url: values.url, async stop() {} };
const server =
  values.sdk === true
    ? await start(["test/conformance/untold-proxy.ts", fixture.url])
    : { ...fixture, async stop() {} };
try {
  const scenarios = values.all ? everyServerScenario() : claimed;
  const rows = scenarios.map((scenario) => tryScenario(scenario, server.url));
  print(rows);
  process.exitCode = rows.some(({ scenario, failed }) => failed > 0 && claimed.includes(scenario)) ? 1 : 0;
} finally {
  await server.stop();
  await fixture.stop();
}

/** Starts a program and waits for the line that says where it listens. */
async function start(program: readonly string[]): Promise<{ url: string; stop(): Promise<void> }> {
  const args = ["--conditions=mcp-tasks-dev", ...program];
  const child = spawn(process.execPath, args, { cwd: root, stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(child, "exit");
  const late = setTimeout(() => child.kill("SIGKILL"), 30_000);
  for await (const line of createInterface({ input: child.stdout })) {
    if (!line.startsWith("{")) continue;
    clearTimeout(late);
    child.stdout.resume();
    const { url } = JSON.parse(line) as { url: string };
    return { url, stop: async () => void (child.kill("SIGTERM"), await ended) };
  }
  clearTimeout(late);
  throw new Error("a server ended, or took over 30 s, without saying where it listens");
}

function everyServerScenario(): string[] {
  const listed = execFileSync("conformance", ["list", "--server"], { encoding: "utf8" });
  return [...listed.matchAll(/^ +- (\S+)/gm)].map(([, name = ""]) => name);
}

/** One scenario in a process of its own. What it checked stands in a file, whatever it prints. */
function tryScenario(scenario: string, url: string): Row {
  const results = mkdtempSync(join(tmpdir(), "mcp-tasks-conformance-"));
  try {
    const suite = ["--suite", claimed.includes(scenario) ? "pending" : "all"];
    const args = ["server", "--url", url, ...suite, "--scenario", scenario, "--output-dir", results];
    const { stdout, stderr } = spawnSync("conformance", args, { encoding: "utf8", timeout: 120_000 });
    const [file] = globSync("*/checks.json", { cwd: results });
    if (file === undefined) return outcome(scenario, [], `it ended without a result: ${errorLine(stdout + stderr)}`);
    return outcome(scenario, JSON.parse(readFileSync(join(results, file), "utf8")) as Check[]);
  } finally {
    rmSync(results, { recursive: true, force: true });
  }
}

/** A warning counts as a failure, as it does for the suite's own exit code. A scenario without checks has failed. */
function outcome(scenario: string, checks: Check[], fault = "it made no check"): Row {
  const failing = checks.filter(({ status }) => status === "FAILURE" || status === "WARNING");
  const passed = checks.filter(({ status }) => status === "SUCCESS").length;
  const skipped = checks.filter(({ status }) => status === "SKIPPED").length;
  const failures = failing.map((check) => `${check.id}: ${lastLine(check.errorMessage ?? check.description)}`);
  if (passed + skipped + failing.length === 0) failures.push(fault);
  return { scenario, passed, failed: failures.length, skipped, failures };
}

function errorLine(text: string): string {
  return /^.*(error|timed out|failed).*$/im.exec(text)?.[0].trim() ?? lastLine(text);
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}

function print(rows: Row[]): void {
  const width = Math.max(...rows.map(({ scenario }) => scenario.length));
  console.log(`${"scenario".padEnd(width)}  passed  failed  skipped`);
  for (const { scenario, passed, failed, skipped, failures } of rows) {
    console.log(`${scenario.padEnd(width)}  ${cell(passed)}  ${cell(failed)}  ${cell(skipped, 7)}`);
    for (const failure of failures) console.log(`  - ${failure}`);
  }
  const others = rows.filter(({ scenario, failed }) => failed > 0 && !claimed.includes(scenario));
  if (others.length > 0) console.log(`not claimed, and failing: ${others.map(({ scenario }) => scenario).join(", ")}`);
  const sum = (key: "passed" | "failed" | "skipped") => rows.reduce((total, row) => total + row[key], 0);
  console.log(`${sum("passed")} passed, ${sum("failed")} failed, ${sum("skipped")} skipped`);
}

function cell(value: number, width = 6): string {
  return String(value).padStart(width);
}
