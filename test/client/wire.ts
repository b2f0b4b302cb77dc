/** Shapes for scripted servers. */

let ticks = 0;
/** A later `lastUpdatedAt` at each call, as a server's would be. */
const stamp = () => new Date(Date.UTC(2026, 7, 1) + (ticks += 1)).toISOString();

export const taskFields = (more: object = {}) => ({
  taskId: "task-1",
  status: "working",
  createdAt: "2026-08-01T00:00:00.000Z",
  lastUpdatedAt: stamp(),
  ttlMs: null,
  pollIntervalMs: 250,
  ...more,
});

export const created = (more: object = {}) => ({ resultType: "task", ...taskFields(more) });
export const working = (more: object = {}) => ({ resultType: "complete", ...taskFields(more) });
export const text = (value: string, more: object = {}) => ({ content: [{ type: "text", text: value }], ...more });
export const completed = (value = "done", more: object = {}) =>
  working({ status: "completed", result: { resultType: "complete", ...text(value) }, ...more });
export const cancelled = () => working({ status: "cancelled" });
export const failed = (error: object) => working({ status: "failed", error });
export const asking = (inputRequests: object, more: object = {}) =>
  working({ status: "input_required", inputRequests, ...more });

export const form = (message: string) => ({
  method: "elicitation/create",
  params: {
    mode: "form",
    message,
    requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  },
});
export const ack = { resultType: "complete" };
