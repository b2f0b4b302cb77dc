import { asTaskError, TaskError } from "../../errors.ts";

/** SQLSTATE classes and codes that say: the server is away, going, or out of something. */
const unavailable = /^(08|53|57|58|XX|25006|3D000|28)/;

/** Two transactions were in each other's way, and another try may succeed. */
const conflicts = ["40001", "40P01", "55P03"];

/** Something of ours is missing, or we may not use it. */
const unreadable = /^(42501|42P01|42883|3F000|42703)/;

/** The SQLSTATE of an error that the server reported; undefined for one of the way there. */
function stateOf(thrown: unknown): string | undefined {
  const { code, severity } = thrown as { code?: unknown; severity?: unknown };
  return typeof code === "string" && typeof severity === "string" ? code : undefined;
}

export function isConflict(thrown: unknown): boolean {
  return conflicts.includes(stateOf(thrown) ?? "");
}

/**
 * Whether a prepared statement was not, or already, where it was looked for, and has not run: a pooler that doesn't know
 * them gave us another one's connection.
 */
export function isMisplaced(thrown: unknown): boolean {
  return ["26000", "42P05"].includes(stateOf(thrown) ?? "");
}

/** Whether the server was not there to answer: whoever waits for a connection waits in vain. */
export function isLost(thrown: unknown): boolean {
  if (thrown instanceof TaskError || thrown instanceof TypeError || thrown instanceof SyntaxError) return false;
  const state = stateOf(thrown);
  return state === undefined ? thrown instanceof Error : unavailable.test(state);
}

/** Refused before it began, or taken back: the server says so itself, and goes on. */
const undone = /^(53|57014|25006|28|3D000)/;

/** Whether a statement that was sent may have been carried out: its answer was lost, with the connection or on the way. */
export function isUnsure(thrown: unknown): boolean {
  return isLost(thrown) && !undone.test(stateOf(thrown) ?? "");
}

/** Whatever a statement threw, as the error that a verb throws. The driver's own one stays its cause. */
export function storeError(thrown: unknown): TaskError {
  if (thrown instanceof TaskError) return thrown;
  if (isConflict(thrown)) return new TaskError("STORE_BUSY", { cause: thrown });
  if (isLost(thrown)) return new TaskError("STORE_UNAVAILABLE", { cause: thrown });
  if (unreadable.test(stateOf(thrown) ?? "")) return new TaskError("STORE_UNREADABLE", { cause: thrown });
  return asTaskError(thrown);
}
