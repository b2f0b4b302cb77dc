import { test } from "vitest";
import { rules, type RuleId } from "./rules.ts";

/**
 * A test that proves a rule, or several at once. The sentence says what is seen; the ids come before it in the report.
 * Throws for an id that is in no rule.
 */
export function verifies(
  ids: RuleId | readonly [RuleId, ...RuleId[]],
  sentence: string,
  run: () => Promise<void>,
  timeoutMs?: number,
): void {
  const cited = typeof ids === "string" ? [ids] : ids;
  for (const id of cited) if (!Object.hasOwn(rules, id)) throw new Error(`no rule is called ${id}`);
  test(`[${cited.join(" ")}] ${sentence}`, run, timeoutMs);
}
