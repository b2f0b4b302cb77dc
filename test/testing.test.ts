import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { taskTool } from "../src/tool.ts";
import { replayEverywhere } from "../src/testing.ts";

const text = (value: unknown) => ({ content: [{ type: "text" as const, text: String(value) }] });

describe("replayEverywhere", () => {
  test("finds nothing in a handler that replays well, and tries every point", async () => {
    const tool = taskTool({
      name: "good",
      async run(_args, task) {
        const a = await task.step("a", ({ key }) => key.length);
        const { n } = await task.elicit("n", { message: "N?", schema: z.object({ n: z.number() }) });
        await task.sleep("night", "12h");
        await task.approve("go", "Go?");
        const event = await task.event<string>("paid");
        await task.step("b", () => "sent", { once: true }).catch(() => "unknown");
        return text(`${a > 0} ${n} ${event}`);
      },
    });
    const report = await replayEverywhere(tool, {}, { n: { n: 3 }, go: true, paid: "yes" });
    expect(report).toMatchObject({ ranTwice: [], changedKeys: [], unstepped: [], different: [] });
    expect(report.task).toMatchObject({ status: "completed", result: text("true 3 yes") });
    // Seven writes before the end: a, park four times, b's start and b's value; then the end itself.
    expect(report.points).toBe(16);
  });

  test("lets waits without an answer time out, at every point alike", async () => {
    const tool = taskTool({
      name: "impatient",
      async run(_args, task) {
        const codeOf = (error: unknown) => (error as { code: string }).code;
        const boss = task.approve("boss", "Boss?", { timeout: "1d" }).catch(codeOf);
        const size = task.elicit("size", { message: "Size?", schema: z.object({ n: z.number() }), timeout: "2d" });
        const said = [await boss, (await size).n];
        const paid = await task.event<string>("paid", { timeout: "1h" });
        const sent = await task.event("sent", { timeout: "1h" }).catch(codeOf);
        const job = await task.poll("job", { every: "1h", timeout: "90m" }, () => undefined).catch(codeOf);
        return text([...said, paid, sent, job].join());
      },
    });
    const report = await replayEverywhere(tool, {}, { size: { n: 3 }, paid: "yes" });
    expect(report).toMatchObject({ ranTwice: [], changedKeys: [], unstepped: [], different: [] });
    const late = "WAIT_TIMED_OUT";
    expect(report.task).toMatchObject({ status: "completed", result: text(`${late},3,yes,${late},${late}`) });
    // Seven writes: five parks, the end of the poll and that of the task.
    expect(report.points).toBe(14);
  });

  test("gives an event that has an answer in time, whatever else the handler waits for", async () => {
    const tool = taskTool({
      name: "slow-rival",
      async run(_args, task) {
        const code = (error: unknown) => (error as { code: string }).code;
        const first = task.event<string>("paid", { timeout: "1h" });
        const slept = await Promise.all([first, task.sleep("night", "12h")]);
        const asked = task.approve("boss", "Boss?", { timeout: "2h" }).catch(code);
        return text([slept[0], await task.event<string>("sent", { timeout: "1h" }), await asked].join());
      },
    });
    const report = await replayEverywhere(tool, {}, { paid: "yes", sent: "too" });
    expect(report).toMatchObject({ different: [], task: { result: text("yes,too,WAIT_TIMED_OUT") } });
  });

  test("finds the charge before an approval, which is made again after it", async () => {
    let charges = 0;
    const tool = taskTool({
      name: "double-charge",
      async run(_args, task) {
        await delay(2);
        charges++;
        await task.approve("ship", "Ship it?");
        return text("shipped");
      },
    });
    const report = await replayEverywhere(tool, {}, { ship: true });
    expect(report.unstepped).toEqual([{ before: "ship", ms: expect.any(Number) }]);
    expect(charges).toBeGreaterThan(1);
  });

  test("finds a step that runs twice without using its idempotency key", async () => {
    const tool = taskTool({
      name: "no-key",
      async run(_args, task) {
        await task.step("with", ({ key }) => key);
        await task.step("without", () => 1);
        return text("ok");
      },
    });
    expect((await replayEverywhere(tool, {})).ranTwice).toEqual(["without"]);
  });

  test("finds names that change from one attempt to the next, and ends that differ", async () => {
    let attempts = 0;
    const tool = taskTool({
      name: "fickle",
      async run(_args, task) {
        const attempt = attempts++;
        await task.step(`s${attempt}`, ({ key }) => key.length);
        await task.approve("go", "Go?");
        return text(attempt);
      },
    });
    const report = await replayEverywhere(tool, {}, { go: true });
    expect(report.changedKeys.length).toBeGreaterThan(0);
    expect(report.different.length).toBeGreaterThan(0);
  });

  test("says so when there is no answer for a question, or one that doesn't fit", async () => {
    const tool = taskTool({
      name: "asks",
      run: async (_args, task) =>
        text((await task.elicit("n", { message: "N?", schema: z.object({ n: z.number() }) })).n),
    });
    await expect(replayEverywhere(tool, {})).rejects.toMatchObject({
      code: "MISUSE",
      message: expect.stringContaining('"n"'),
    });
    await expect(replayEverywhere(tool, {}, { n: { n: "x" } })).rejects.toMatchObject({ code: "MISUSE" });
  });
});
