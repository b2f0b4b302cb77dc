import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { asTaskError, codes, TaskError, type TaskErrorCode } from "../src/errors.ts";

const names = Object.keys(codes) as TaskErrorCode[];
const page = readFileSync(new URL("../docs/reference/errors.md", import.meta.url), "utf8");

/** The rows of the page: `| CODE | -32603 | meaning | what to do |`. */
const rows = [...page.matchAll(/^\| `([A-Z_]+)` \| (-\d+) \| (.+?) \| (.+?) \|$/gm)].map(
  ([, code = "", rpc = "", meaning = "", remedy = ""]) => ({ code, rpc: Number(rpc), meaning, remedy }),
);

test("docs/reference/errors.md has a row for each code, with its JSON-RPC code", () => {
  const faults = names.flatMap((code) => {
    const found = rows.filter((row) => row.code === code);
    if (found.length === 0) return [`add a row: | \`${code}\` | ${codes[code].rpc} | meaning | what to do |`];
    if (found.length > 1) return [`keep one row of ${found.length} for ${code}`];
    return found[0]?.rpc === codes[code].rpc ? [] : [`the row of ${code} must say ${codes[code].rpc}`];
  });
  expect(faults, faults.join("\n")).toEqual([]);
});

test("docs/reference/errors.md explains no code that doesn't exist", () => {
  const stale = rows.map(({ code }) => code).filter((code) => !Object.hasOwn(codes, code));
  expect(stale, `take these rows out: ${stale.join(", ")}`).toEqual([]);
});

test("every line of docs/reference/errors.md that looks like a row is one", () => {
  const lines = page.split("\n").filter((line) => line.startsWith("| `"));
  expect(lines).toHaveLength(rows.length);
});

test.each(names)("the text of %s is sentences without a path, SQL or a placeholder", (code) => {
  const { text } = codes[code];
  expect(text).toMatch(/^([A-Z]|mcp-tasks).*\.$/);
  expect(text).not.toMatch(/(^|\s)\.{0,2}\/\w|[A-Z]:\\|\w\.(ts|js|db)\b/);
  expect(text).not.toMatch(/\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|PRAGMA|SQLITE|BEGIN|COMMIT)\b/);
  expect(text).not.toMatch(/\$\{|%s|undefined|\bat \w+ \(/);
});

test("an error on the wire has its code, its text and its data, and neither cause nor stack", () => {
  const cause = new Error("SELECT secret FROM /var/lib/tasks.db");
  const error = new TaskError("INTERNAL", { detail: "Ask again.", data: { retry: true }, cause });
  expect(error.toRpc()).toEqual({
    code: codes.INTERNAL.rpc,
    message: `${codes.INTERNAL.text} Ask again.`,
    data: { retry: true },
  });
  expect(new TaskError("DECLINED").toRpc()).toEqual({ code: codes.DECLINED.rpc, message: codes.DECLINED.text });
});

test("anything thrown becomes an error that tells nothing of it, and keeps it as its cause", () => {
  const thrown = new Error("a secret");
  const error = asTaskError(thrown, "STORE_UNAVAILABLE");
  expect(error).toMatchObject({ code: "STORE_UNAVAILABLE", message: codes.STORE_UNAVAILABLE.text, cause: thrown });
  expect(asTaskError(error)).toBe(error);
});
