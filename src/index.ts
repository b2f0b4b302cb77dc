export {
  channels,
  type AttemptEnd,
  type AttemptEnded,
  type AttemptStarted,
  type MethodAnswered,
  type TaskCreated,
  type WriteRefused,
} from "./channels.ts";
export type { Clock, Duration } from "./clock.ts";
export { codes, TaskError, type RpcError, type TaskErrorCode } from "./errors.ts";
export type { HostRule, ReplyOptions } from "./server/hosts.ts";
export type { ServeOptions, TaskHandler } from "./server/http.ts";
export type { StdioHandle, StdioOptions } from "./server/stdio.ts";
export type { TaskStore } from "./store/store.ts";
export { createTasks, type Tasks, type TasksOptions, type WorkOptions } from "./tasks.ts";
export {
  taskTool,
  type Before,
  type Elicit,
  type ElicitAnswer,
  type ElicitOptions,
  type PollOptions,
  type StepContext,
  type StepOptions,
  type TaskContext,
  type TaskSettings,
  type TaskTool,
  type ToolDefinition,
  type WaitOptions,
} from "./tool.ts";
export type { Worker } from "./worker/worker.ts";
