/**
 * Packs the package, looks at the tarball, installs it into an empty project with its peers and tries it there: each
 * export in plain JavaScript, the types with tsc, a program on SQLite. `npm run package:check`.
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

interface Manifest {
  name: string;
  exports: Record<string, unknown>;
  bin?: Record<string, string>;
  devDependencies: Record<string, string>;
  peerDependenciesMeta?: Record<string, { optional?: boolean }>;
}

const root = fileURLToPath(new URL("../../", import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Manifest;
const work = mkdtempSync(join(tmpdir(), "mcp-tasks-package-"));
const project = join(work, "project");
const count = { passed: 0, failed: 0 };

/** Exports that need an optional peer. The others must work without any. */
const withOptionalPeers = ["./postgres", "./otel"];
const optionalPeers = Object.entries(manifest.peerDependenciesMeta ?? {}).flatMap(([name, { optional }]) => {
  return optional === true ? [`${name}@${manifest.devDependencies[name] ?? "latest"}`] : [];
});
const subpaths = Object.keys(manifest.exports).filter((path) => path !== "./package.json");
const plain = subpaths.filter((path) => !withOptionalPeers.includes(path));
const peered = subpaths.filter((path) => withOptionalPeers.includes(path));

try {
  check();
} finally {
  rmSync(work, { recursive: true, force: true });
}
console.log(`${count.passed} passed, ${count.failed} failed, 0 skipped`);
process.exitCode = count.failed === 0 ? 0 : 1;

function check(): void {
  if (!run("the package builds and packs", root, "npm", ["pack", "--pack-destination", work])) return;
  const tarball = join(work, readdirSync(work).find((name) => name.endsWith(".tgz")) ?? "");
  // No source map points at sources that are not shipped; no test or configuration is shipped.
  const listed = spawnSync("tar", ["-tzf", tarball], { encoding: "utf8" }).stdout.trim().split("\n");
  const stray = listed.filter(
    (path) => !/^package\/(dist\/.*\.(js|d\.ts)|sql\/.*\.sql|[A-Z]+(\.md)?|package\.json)$/.test(path),
  );
  report("the tarball holds dist/, sql/ and nothing else", stray.length === 0, stray.join("\n"));
  run("publint finds nothing", root, "publint", ["run", "--strict", tarball]);
  run("every export has its types (attw)", root, "attw", [tarball, "--profile", "esm-only", "--no-emoji"]);

  cpSync(join(root, "test/package/consumer"), project, { recursive: true });
  writeFileSync(join(project, "package.json"), JSON.stringify({ name: "consumer", private: true, type: "module" }));
  const install = ["install", "--prefer-offline", "--no-audit", "--no-fund", "--save-exact"];
  const types = `@types/node@${manifest.devDependencies["@types/node"]}`;
  if (!run("it installs with its peers into an empty project", project, "npm", [...install, tarball, types])) return;
  for (const path of plain) importing(path);
  run("a program opens SQLite in memory and runs a task", project, "node", ["program.js"]);
  run("a TypeScript program type-checks against it", project, "tsc", ["-p", "tsconfig.json"]);
  for (const name of Object.keys(manifest.bin ?? {})) {
    run(`${name} --help`, project, join(project, "node_modules/.bin", name), ["--help"]);
  }
  if (peered.length === 0) return;
  if (!run("its optional peers install", project, "npm", [...install, ...optionalPeers])) return;
  for (const path of peered) importing(path);
}

function importing(path: string): void {
  const name = manifest.name + path.slice(1);
  const code = `const all = await import("${name}"); if (Object.keys(all).length === 0) throw new Error("no exports");`;
  run(`import "${name}"`, project, "node", ["--input-type=module", "--eval", code]);
}

function run(what: string, cwd: string, command: string, args: string[]): boolean {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd, encoding: "utf8", timeout: 300_000 });
  return report(what, status === 0, `${stdout ?? ""}${stderr ?? ""}${error?.message ?? ""}`);
}

function report(what: string, passed: boolean, output: string): boolean {
  count[passed ? "passed" : "failed"]++;
  console.log(`${passed ? "ok  " : "FAIL"} ${what}`);
  if (!passed) console.log(output.replace(/^/gm, "     "));
  return passed;
}
