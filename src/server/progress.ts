import { stopwatch, type Clock } from "../clock.ts";
import { related } from "../protocol/legacy.ts";
import type { Task } from "../store/store.ts";
import type { Params } from "./methods.ts";
import type { Send } from "./push.ts";

/** One `notifications/progress`, less its token. */
export interface ProgressReport {
  /** Seconds since the task was created: the task's own numbers may stand still, and each report must be larger. */
  readonly progress: number;
  readonly message: string;
}

/** A report that brings news follows the last one after so long, and one that only shows life after so long. */
const newsMs = 1_000;
const lifeMs = 4_000;

/**
 * Reports what a held call sees of its task (core specification, "Progress"). To be called whenever the task was looked
 * at: it has no timer of its own. Without a way to send, nothing is reported.
 */
export function progressReports(clock: Clock, send: ((report: ProgressReport) => void) | null): (task: Task) => void {
  if (send === null) return () => {};
  const passed = stopwatch(clock);
  let told = "";
  let toldAt = 0;
  let ageMs: number | undefined;

  return (task) => {
    const at = passed();
    ageMs ??= Math.max(0, clock.now() - task.createdAt) - at;
    const message = words(task);
    if (at - toldAt < (message === told ? lifeMs : newsMs)) return;
    told = message;
    toldAt = at;
    send({ progress: (ageMs + at) / 1_000, message: message === "" ? "Working" : message });
  };
}

/** Sends reports to whoever made a request, or null where they did not ask for it. `about`: the task they know. */
export function progressTo(
  send: Send,
  params: Params,
  about: string | null = null,
): ((report: ProgressReport) => void) | null {
  const progressToken = (params._meta as Params | undefined)?.progressToken;
  if (progressToken === undefined) return null;
  const meta = about === null ? {} : { _meta: related(about) };
  // Who has left hears nothing; the call itself learns of it by its signal.
  return (report) =>
    void send({
      jsonrpc: "2.0",
      method: "notifications/progress",
      params: { progressToken, ...report, ...meta },
    }).catch(() => {});
}

function words({ statusMessage, progress }: Task): string {
  const { progress: done, total } = progress ?? {};
  const numbers = done === undefined ? "" : total === undefined ? `(${done})` : `(${done} of ${total})`;
  return [statusMessage ?? "", numbers].filter((part) => part !== "").join(" ");
}
