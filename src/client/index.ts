/** `mcp-tasks/client`: calls tools that may become tasks, answers what they ask, and picks them up again. */
export { TaskError, type TaskErrorCode } from "../errors.ts";
export { idempotencyKey } from "../protocol/idempotency.ts";
export type { ToolCall } from "./call.ts";
export { fileLog } from "./file-log.ts";
export type { TaskSnapshot } from "./follower.ts";
export { patientFetch } from "./http.ts";
export type { InputContext, InputHandlers } from "./input.ts";
export { type LoggedTask, memoryLog, type TaskLog } from "./log.ts";
export type { FollowOptions, TaskRun } from "./run.ts";
export { type AboutOptions, type CancelOptions, TaskClient, type TaskClientOptions } from "./task-client.ts";
export type { ServerIdentity } from "./transport.ts";
