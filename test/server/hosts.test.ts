import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { knownHosts, limitsFor, readHost } from "../../src/server/hosts.ts";
import { policy } from "../../src/server/policy.ts";

const usual = { graceMs: 200, holdMs: 25_000 };

test("nobody in particular waits for 200 ms where there is a task to give, and for 25 s where there is none", () => {
  const limits = limitsFor({});
  for (const info of [undefined, null, "x", {}, { name: 7 }, { name: "somebody" }, { name: "somebody", version: 1 }])
    expect(limits(readHost(info))).toEqual(usual);
});

test("a known host is held for three quarters of what it waits, and for what was chosen where something was", () => {
  for (const { name, limitMs } of knownHosts) {
    const host = { name: name.toUpperCase(), version: "9.9" };
    expect(limitsFor({})(host)).toEqual({ graceMs: 200, holdMs: limitMs * 0.75 });
    expect(limitsFor({ hold: "5s" })(host).holdMs).toBe(5_000);
  }
});

test("a rule for a host is found by its name and the beginning of its version, the first one first", () => {
  const limits = limitsFor({
    hosts: [
      { name: "Claude-Code", version: "2.", hold: "4m" },
      { name: "claude-code", grace: 0 },
    ],
  });
  expect(limits({ name: "claude-code", version: "2.1.222" })).toEqual({ graceMs: 200, holdMs: 240_000 });
  expect(limits({ name: "claude-code", version: "1.0" })).toEqual({ graceMs: 0, holdMs: 25_000 });
  expect(limits({ name: "other", version: "2.1" })).toEqual(usual);
});

test.each([{ grace: "soon" }, { hold: -1 }, { hosts: [{ name: "x", hold: "1 minute" }] }])(
  "what is no length of time is refused at once: %j",
  (options) => {
    expect(() => limitsFor(options as never)).toThrow(RangeError);
  },
);

test("the page on hosts has each known one, with its day and its source", () => {
  const page = readFileSync(new URL("../../docs/reference/hosts.md", import.meta.url), "utf8");
  const lines = page.split("\n");
  const missing = knownHosts.filter(
    ({ name, asOf, source }) =>
      !lines.some((line) => [`\`${name}\``, asOf, source].every((part) => line.includes(part))),
  );
  expect(missing).toEqual([]);
});

test("nobody gets a task that did not declare the extension", () => {
  for (const generation of ["rounds", "legacy"] as const)
    for (const way of Object.values(policy[generation]))
      expect(way === "refuse" || (way.asks !== "task" && way.runs !== "task")).toBe(true);
});
