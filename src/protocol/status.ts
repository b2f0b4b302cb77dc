/** The states of a task, and which may follow which (Tasks extension, "Task Status"). */
export const next = {
  working: ["input_required", "completed", "failed", "cancelled"],
  input_required: ["working", "completed", "failed", "cancelled"],
  completed: [],
  failed: [],
  cancelled: [],
} as const satisfies Record<string, readonly string[]>;

/** The state of a task as clients see it. */
export type TaskStatus = keyof typeof next;

/** A state that never changes again. */
export type TerminalStatus = { [S in TaskStatus]: (typeof next)[S] extends readonly [] ? S : never }[TaskStatus];

/** Whether this state is final. */
export function isTerminal(status: TaskStatus): status is TerminalStatus {
  return next[status].length === 0;
}
