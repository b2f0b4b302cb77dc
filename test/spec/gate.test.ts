import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { rules, unobservable, type Rule, type RuleId } from "./rules.ts";

const here = fileURLToPath(new URL(".", import.meta.url));
const citing = /\bverifies\(\s*(?:"([^"]+)"|\[([^\]]*)\])/g;

function citations(): Set<string> {
  const found = new Set<string>();
  for (const file of globSync("*.test.ts", { cwd: here })) {
    if (file === "gate.test.ts") continue;
    for (const [, one, many = ""] of readFileSync(`${here}/${file}`, "utf8").matchAll(citing)) {
      if (one !== undefined) found.add(one);
      for (const [, id = ""] of many.matchAll(/"([^"]+)"/g)) found.add(id);
    }
  }
  return found;
}

describe("the gate", () => {
  const cited = citations();
  const open = (Object.entries(rules) as [RuleId, Rule][]).filter(([id]) => !cited.has(id) && !(id in unobservable));

  test("every rule that must hold has a test that cites it", () => {
    expect(open.filter(([, { level }]) => level === "must").map(([id]) => id)).toEqual([]);
  });

  test("every citation names a rule", () => {
    expect([...cited].filter((id) => !Object.hasOwn(rules, id))).toEqual([]);
  });

  test("no rule is excused that a test cites", () => {
    expect(Object.keys(unobservable).filter((id) => cited.has(id))).toEqual([]);
  });

  test("what should or may hold and is not covered is told", () => {
    for (const [id, { level, says }] of open) console.warn(`not covered: ${id} (${level}): ${says}`);
  });
});
