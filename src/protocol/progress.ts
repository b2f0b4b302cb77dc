/** Where a task's numbers of progress stand in its `_meta`: the extension has no field for them. */
export const progressKey = "io.github.mcp-tasks/progress";

/** How far a task has come, in units of its author's choice. */
export interface Progress {
  readonly progress: number;
  readonly total?: number;
}

/** The progress in a task's `_meta`, if there is one that makes sense. */
export function readProgress(meta: unknown): Progress | undefined {
  const value = (meta as Readonly<Record<string, unknown>> | null | undefined)?.[progressKey];
  const { progress, total } = (value ?? {}) as { progress?: unknown; total?: unknown };
  if (typeof progress !== "number" || !Number.isFinite(progress)) return undefined;
  return typeof total === "number" && Number.isFinite(total) ? { progress, total } : { progress };
}
