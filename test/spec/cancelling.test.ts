import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect } from "vitest";
import { elicitations, open, stdioFixture, temporaryFolder, unknownId } from "./harness.ts";
import { verifies } from "./verifies.ts";

const folder = temporaryFolder();
const { http, stdio } = await open([]);
const transports = [
  ["HTTP", http],
  ["stdio", stdio],
] as const;

describe.each(transports)("cancelling over %s", (name, wire) => {
  const cancel = async (taskId: string) => {
    const { status, body } = await wire.cancel(taskId);
    const { _meta, ...result } = body.result ?? {};
    expect([status, body.error, result]).toEqual([200, undefined, { resultType: "complete" }]);
  };

  verifies(["cancel:ack-empty", "cancel:cooperative"], "a running handler is asked to stop, and stops", async () => {
    const path = join(folder, `${name}-running`);
    const taskId = await wire.start("journal", { path, tag: "x", seconds: 60 });
    const lines = () => {
      try {
        return readFileSync(path, "utf8").trim().split("\n");
      } catch {
        return [];
      }
    };
    while (lines().length === 0) await pause(10);
    const asked = Date.now();
    await cancel(taskId);
    expect((await wire.until(taskId)).status).toBe("cancelled");
    expect(lines().map((line) => line.split(" ")[0])).toEqual(["start", "end"]);
    expect(Date.now() - asked).toBeLessThan(8_000);
  });

  verifies("cancel:cooperative", "what nobody has begun or what waits is cancelled at once, for good", async () => {
    const waiting = await wire.start("confirm_delete", { filename: "x" });
    const [question] = elicitations((await wire.until(waiting, "input_required")).inputRequests);
    await Promise.all([cancel(waiting), wire.update(waiting, { [question!.key]: question!.accept() })]);
    const ended = await wire.until(waiting);
    if (ended.status !== "cancelled") expect(ended.result?.content?.[0]?.text).toBe("Deleted x");
    const sleeping = await wire.start("sleepy", { ms: 600_000 });
    await cancel(sleeping);
    expect((await wire.until(sleeping)).status).toBe("cancelled");
  });

  verifies("cancel:unknown-id", "a cancel of an unknown task is refused", async () => {
    for (const id of [unknownId, "nonsense"]) expect((await wire.cancel(id)).body.error?.code).toBe(-32602);
  });

  verifies("cancel:terminal-idempotent", "a finished task takes a cancel and stays as it is", async () => {
    const done = await wire.start("slow_compute", { seconds: 0, label: "x" });
    const cancelled = await wire.start("sleepy", { ms: 600_000 });
    await cancel(cancelled);
    for (const taskId of [done, await wire.start("protocol_error_job"), cancelled]) {
      const before = await wire.until(taskId);
      await cancel(taskId);
      await cancel(taskId);
      expect((await wire.get(taskId)).body.result).toEqual(before);
    }
  });
});

describe("what is no cancel", () => {
  verifies(
    "cancel:not-by-notification",
    "notifications/cancelled for the call that made a task changes nothing",
    async () => {
      const taskId = await stdio.start("slow_compute", { seconds: 0.4, label: "kept" }, { id: "the call" });
      stdio.notify("notifications/cancelled", { requestId: "the call", reason: "changed my mind" });
      stdio.notify("notifications/cancelled", { requestId: taskId });
      stdio.notify("notifications/cancelled", { taskId });
      expect(await stdio.until(taskId)).toMatchObject({ status: "completed" });
    },
  );

  verifies("cancel:cooperative", "a connection that breaks after the handle leaves the task alone", async () => {
    const controller = new AbortController();
    const taskId = await http.start("slow_compute", { seconds: 0.3, label: "x" }, { signal: controller.signal });
    controller.abort();
    expect((await http.until(taskId)).status).toBe("completed");
    const db = join(folder, "stdio.db");
    const first = stdioFixture(["--db", db]);
    const other = await first.start("sleepy", { ms: 300 });
    await first.close();
    await using second = stdioFixture(["--db", db]);
    expect((await second.until(other)).status).toBe("completed");
  });
});
