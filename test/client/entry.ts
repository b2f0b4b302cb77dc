import type { LoggedTask } from "../../src/client/index.ts";

/** A log entry of a scripted server's task. */
export const entry = (more: Partial<LoggedTask> = {}): LoggedTask => ({
  call: "call-1",
  server: { address: "http://127.0.0.1/mcp", name: "fake" },
  tool: "x",
  digest: null,
  startedAt: 0,
  taskId: "task-1",
  state: "working",
  answers: {},
  ...more,
});
