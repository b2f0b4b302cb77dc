import { asTaskError, TaskError } from "../../errors.ts";

/** SQLite's primary result codes that mean something to us. */
const busyCodes = [5, 15];
const unavailableCodes = [7, 8, 10, 11, 13, 14, 26];

function primaryCode(thrown: unknown): number | undefined {
  const { errcode } = thrown as { errcode?: unknown };
  // The upper bits say more (SQLITE_BUSY_RECOVERY, say); the lower eight are the kind.
  return typeof errcode === "number" ? errcode & 0xff : undefined;
}

/** Whether another connection is in the way, and another try may succeed. */
export function isBusy(thrown: unknown): boolean {
  const code = primaryCode(thrown);
  return code !== undefined && busyCodes.includes(code);
}

/** Whatever a statement threw, as the error that a verb throws. The native one stays its cause. */
export function storeError(thrown: unknown): TaskError {
  const code = primaryCode(thrown);
  if (isBusy(thrown)) return new TaskError("STORE_BUSY", { cause: thrown });
  if (code !== undefined && unavailableCodes.includes(code))
    return new TaskError("STORE_UNAVAILABLE", { cause: thrown });
  if ((thrown as { code?: unknown }).code === "ERR_INVALID_STATE")
    return new TaskError("STORE_CLOSED", { cause: thrown });
  return asTaskError(thrown);
}
