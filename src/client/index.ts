/** `mcp-tasks/client`: calls tools that may become tasks, answers what they ask, and picks them up again. */
export { TaskError, type TaskErrorCode } from "../errors.ts";
export { patientFetch } from "./http.ts";
export type { InputContext, InputHandlers } from "./input.ts";
export { fileLog, type LoggedTask, type TaskLog } from "./log.ts";
export type { FollowOptions, TaskRun, TaskSnapshot } from "./run.ts";
export { TaskClient, type TaskClientOptions, type ToolCall } from "./task-client.ts";
