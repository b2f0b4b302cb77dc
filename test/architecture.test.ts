import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseSync, Visitor } from "vite";
import { expect, test } from "vitest";

/** The house: what each part of src/ may import. What is not in a row is forbidden; a file in no part is, too. */
const everyone = ["protocol", "errors", "clock"];
const sdk = "@modelcontextprotocol";
const parts: Record<string, { parts: string[]; packages: string[] }> = {
  errors: { parts: [], packages: [] },
  clock: { parts: ["errors"], packages: [] },
  protocol: { parts: ["errors", "clock"], packages: ["zod", "node:crypto", `${sdk}/server`, `${sdk}/ext-tasks`] },
  channels: { parts: ["protocol"], packages: ["node:diagnostics_channel"] },
  blobs: { parts: [], packages: ["node:*"] },
  liveness: { parts: [], packages: ["node:*"] },
  tool: { parts: everyone, packages: ["zod", `${sdk}/server`] },
  "store/store": { parts: everyone, packages: [] },
  "store/rules": { parts: [...everyone, "store/store"], packages: [] },
  "store/contract": { parts: [...everyone, "store/store"], packages: ["node:*", "fast-check"] },
  "store/sqlite": { parts: [...everyone, "store/store", "store/rules", "liveness"], packages: ["node:*"] },
  "store/postgres": { parts: [...everyone, "store/store", "store/rules"], packages: ["node:*", "pg"] },
  engine: { parts: [...everyone, "channels", "store/store"], packages: ["node:*"] },
  worker: {
    parts: [...everyone, "channels", "store/store", "blobs", "engine", "tool"],
    packages: ["node:*", "zod", `${sdk}/server`, `${sdk}/ext-tasks`],
  },
  server: {
    parts: [...everyone, "channels", "store/store", "blobs", "engine", "tool"],
    packages: ["node:*", "zod", `${sdk}/server`, `${sdk}/ext-tasks`, "hono", "@hono/node-server"],
  },
  client: { parts: [...everyone, "liveness"], packages: ["node:*", "zod", `${sdk}/client`, `${sdk}/ext-tasks`] },
  tasks: {
    parts: [...everyone, "store/store", "blobs", "engine", "tool", "server", "worker"],
    packages: [`${sdk}/server`],
  },
  otel: { parts: ["channels", "protocol", "store/store"], packages: ["node:*", "@opentelemetry/api"] },
  index: {
    parts: [...everyone, "channels", "store/store", "engine", "tool", "server", "worker", "tasks"],
    packages: [],
  },
  testing: {
    parts: [...everyone, "store/store", "store/contract", "store/sqlite", "engine", "tool", "worker", "tasks"],
    packages: ["node:*", "zod", `${sdk}/server`, `${sdk}/client`],
  },
  cli: { parts: ["*"], packages: ["*"] },
};

/** Which files may take something of the process: the cli, a store or log asking who lives, and who serves its streams. */
const processImports: Record<string, string[]> = {
  "node:process": ["cli/", "liveness.ts", "server/stdio.ts"],
  "node:console": ["cli/"],
};

test("parts of src import only what the picture in ARCHITECTURE.md allows", () => {
  expect(violations(sources())).toEqual([]);
});

test("no file of src can be reached from itself by imports", () => {
  expect(cycles(sources())).toEqual([]);
});

test("every part in the table exists", () => {
  const existing = new Set([...sources().keys()].map(partOf));
  expect(Object.keys(parts).filter((part) => !existing.has(part))).toEqual([]);
});

test.each<[string, Record<string, string>, string]>([
  [
    "an engine on a concrete store",
    { "engine/a.ts": 'import "../store/sqlite/index.ts";' },
    "engine must not import store/sqlite",
  ],
  [
    "a server on the worker",
    { "server/a.ts": 'import type { A } from "../worker/a.ts";' },
    "server must not import worker",
  ],
  ["a worker on the server", { "worker/a.ts": 'export { a } from "../server/a.ts";' }, "worker must not import server"],
  [
    "a client on the engine",
    { "client/a.ts": 'const a = await import("../engine/a.ts");' },
    "client must not import engine",
  ],
  ["a type import in a type", { "protocol/a.ts": 'type A = import("../tool.ts").A;' }, "protocol must not import tool"],
  ["anybody on the cli", { "tasks.ts": 'import "./cli/main.ts";' }, "tasks must not import cli"],
  [
    "an import by the package's own name",
    { "engine/a.ts": 'import "mcp-tasks/sqlite";' },
    "engine must not import mcp-tasks/sqlite",
  ],
  ["an import of a package", { "engine/a.ts": 'import "hono";' }, "engine must not import hono"],
  ["a computed import", { "engine/a.ts": "await import(name);" }, "engine imports a computed name"],
  ["a global of the process", { "worker/a.ts": "process.on('exit', f);" }, "worker must not use process"],
  ["the process by a detour", { "worker/a.ts": "globalThis.process.exit();" }, "worker must not use process"],
  [
    "the process as an import",
    { "server/a.ts": 'import { env } from "node:process";' },
    "server must not import node:process",
  ],
  ["a print", { "engine/a.ts": "console.error(1);" }, "engine must not use console"],
  ["a file without a part", { "helpers/a.ts": "" }, "helpers/a.ts has no part in the table"],
])("the check refuses %s", (_, files, complaint) => {
  expect(violations(new Map(Object.entries(files))).map((line) => line.replace(/^\S+\.ts: /, ""))).toEqual([complaint]);
});

test("the check lets names pass that only look like the process", () => {
  const text = "interface A { process: string } const a: A = { process: b.console }; a.process;";
  expect(violations(new Map([["engine/a.ts", text]]))).toEqual([]);
});

test("the check takes an imported process for an import, which a store may have", () => {
  const text = 'import process from "node:process"; process.kill(1, 0);';
  expect(violations(new Map([["liveness.ts", text]]))).toEqual([]);
  expect(violations(new Map([["worker/a.ts", text]]))).toEqual(["worker/a.ts: worker must not import node:process"]);
});

test("the check finds a circle", () => {
  const files = {
    "engine/a.ts": 'import "./b.ts";',
    "engine/b.ts": 'import "./c.ts";',
    "engine/c.ts": 'import "./a.ts";',
  };
  expect(cycles(new Map(Object.entries(files)))).toEqual(["engine/a.ts > engine/b.ts > engine/c.ts > engine/a.ts"]);
});

/** The files of src/ by their path inside it, with `/` between folders. */
function sources(): Map<string, string> {
  const root = fileURLToPath(new URL("../src/", import.meta.url));
  const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.name.endsWith(".ts"),
  );
  const found = files.map((entry) => join(entry.parentPath, entry.name));
  return new Map(
    found.toSorted().map((path) => [relative(root, path).replaceAll("\\", "/"), readFileSync(path, "utf8")]),
  );
}

/** The part that a file belongs to: its first folder, in store/ the first two names, at the top its own name. */
function partOf(path: string): string {
  const [first = "", second = ""] = path.replace(/\.ts$/, "").split("/");
  return first === "store" ? `store/${second.replace(/^contract.*/, "contract")}` : first;
}

function violations(files: Map<string, string>): string[] {
  return [...files].flatMap(([path, text]) => {
    const part = partOf(path);
    if (parts[part] === undefined) return [`${path} has no part in the table`];
    const used = read(path, text);
    const imports = used.imports.flatMap((name) => {
      if (name === null) return part === "cli" ? [] : [`${path}: ${part} imports a computed name`];
      const target = name.startsWith(".") ? partOf(resolved(path, name)) : name;
      return allowed(path, target, name.startsWith(".")) ? [] : [`${path}: ${part} must not import ${target}`];
    });
    const globals = part === "cli" ? [] : used.globals.map((name) => `${path}: ${part} must not use ${name}`);
    return [...imports, ...globals];
  });
}

function allowed(path: string, target: string, local: boolean): boolean {
  const part = partOf(path);
  const rule = parts[part] ?? { parts: [], packages: [] };
  if (local) return target === part || rule.parts.includes("*") || rule.parts.includes(target);
  const keepers = processImports[target];
  if (keepers !== undefined) return keepers.some((keeper) => path.startsWith(keeper));
  if (target === "node:sqlite" && part !== "store/sqlite" && part !== "cli") return false;
  return rule.packages.some((name) => {
    return name === "*" || target === name || target.startsWith(name.endsWith("*") ? name.slice(0, -1) : `${name}/`);
  });
}

function cycles(files: Map<string, string>): string[] {
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (path: string, trail: string[]): void => {
    const at = trail.indexOf(path);
    if (at >= 0) found.push([...trail.slice(at), path].join(" > "));
    if (at >= 0 || done.has(path)) return;
    for (const name of read(path, files.get(path) ?? "").imports) {
      if (name?.startsWith(".") === true) visit(resolved(path, name), [...trail, path]);
    }
    done.add(path);
  };
  for (const path of files.keys()) visit(path, []);
  return found;
}

function resolved(path: string, name: string): string {
  return posix.join(dirname(path), name);
}

/** What a file imports (null: a name that is computed) and which globals of the process it uses. */
function read(path: string, text: string): { imports: (string | null)[]; globals: string[] } {
  const { program, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path} can't be parsed: ${errors[0]?.message}`);
  const imports: (string | null)[] = [];
  const globals = new Set<string>();
  const local = new Set<string>();
  const add = (source: { type: string; value?: unknown } | null) => {
    if (source !== null) imports.push(typeof source.value === "string" ? source.value : null);
  };
  const watched = (name: string) => ["process", "console"].includes(name) && globals.add(name);
  const visitor = new Visitor({
    ImportDeclaration(node) {
      add(node.source);
      for (const { local: name } of node.specifiers) local.add(name.name);
    },
    ExportNamedDeclaration: (node) => add(node.source),
    ExportAllDeclaration: (node) => add(node.source),
    ImportExpression: (node) => add(node.source),
    TSImportType: (node) => add(node.source),
    MemberExpression(node) {
      if (node.object.type !== "Identifier") return;
      watched(node.object.name);
      if (node.object.name === "globalThis" && node.property.type === "Identifier") watched(node.property.name);
    },
    CallExpression(node) {
      for (const argument of node.arguments) if (argument.type === "Identifier") watched(argument.name);
    },
    VariableDeclarator(node) {
      if (node.init?.type === "Identifier") watched(node.init.name);
    },
  });
  visitor.visit(program);
  return { imports, globals: [...globals].filter((name) => !local.has(name)) };
}
