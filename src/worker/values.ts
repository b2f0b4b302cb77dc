import type { Blobs } from "../blobs.ts";
import { TaskError } from "../errors.ts";
import { resultKey, resultUri } from "../protocol/large.ts";
import type { Attempt, Outcome } from "../store/store.ts";
import type { TaskTool } from "../tool.ts";
import { failed, serialize, toolError } from "./result.ts";

/** What a worker keeps of values: how large they may be in the store, and where larger ones go, if anywhere. */
export interface ValueLimits {
  /** In bytes of JSON. */
  readonly maxResultBytes: number;
  readonly maxStepBytes: number;
  readonly blobs: Blobs | null;
}

/** The text that stands for `undefined`, which JSON lacks. */
const nothing = "";

/** Begins the text that stands for a value kept apart; no JSON text begins so. */
const apart = "@";

/**
 * A step's value as it will be read back, and the text that is recorded. Throws `STEP_NOT_JSON` for what JSON can't
 * hold and `STEP_TOO_LARGE` for what may not be kept. What is kept apart bears the epoch: an attempt that has lost its
 * lease must not write over what another one recorded.
 */
export async function keepStep(
  limits: ValueLimits,
  { taskId, epoch }: Attempt,
  key: string,
  value: unknown,
): Promise<{ text: string; value: unknown }> {
  const text = value === undefined ? nothing : serialize(value);
  if (text === null) throw new TaskError("STEP_NOT_JSON");
  const { maxStepBytes, blobs } = limits;
  const kept = { text, value: text === nothing ? undefined : (JSON.parse(text) as unknown) };
  if (Buffer.byteLength(text) <= maxStepBytes) return kept;
  if (blobs === null) throw new TaskError("STEP_TOO_LARGE", { detail: `It may have ${maxStepBytes} bytes.` });
  return { ...kept, text: apart + (await blobs.keep(taskId, `${epoch} ${key}`, text)) };
}

/** The value of a recorded text. */
export async function recallStep({ blobs }: ValueLimits, text: string): Promise<unknown> {
  if (text === nothing) return undefined;
  if (!text.startsWith(apart)) return JSON.parse(text);
  const kept = await blobs?.read(text.slice(apart.length));
  if (typeof kept !== "string")
    throw new TaskError("MISUSE", { detail: "A step's value is kept in a folder that is not given." });
  return JSON.parse(kept);
}

/**
 * A result that is too large for the store is kept apart, and a link to it takes its place. Where that can't be, or
 * where the tool promised structured content, it is a tool error. A JSON-RPC error that is too large is another one.
 */
export async function fitResult(
  limits: ValueLimits,
  { taskId, epoch }: Attempt,
  tool: TaskTool,
  outcome: Outcome,
): Promise<Outcome> {
  const { maxResultBytes, blobs } = limits;
  if (outcome.status === "cancelled") return outcome;
  const size = Buffer.byteLength(outcome.status === "completed" ? outcome.result : outcome.error);
  if (size <= maxResultBytes) return outcome;
  const tooLarge = new TaskError("RESULT_TOO_LARGE", { detail: `It may have ${maxResultBytes} bytes.` });
  if (outcome.status === "failed") return failed(tooLarge.toRpc());
  if (blobs === null || tool.outputSchema !== undefined) return toolError(tooLarge.message);
  await blobs.keep(taskId, resultKey(epoch), outcome.result);
  const { isError } = JSON.parse(outcome.result) as { isError?: boolean };
  const link = { type: "resource_link", uri: resultUri(taskId), name: "result", mimeType: "application/json", size };
  const result = { resultType: "complete", content: [link], ...(isError === true ? { isError } : {}) };
  return { status: "completed", result: JSON.stringify(result) };
}
