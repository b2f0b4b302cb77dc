import type { Clock } from "../clock.ts";
import { isTerminal } from "../protocol/status.ts";
import type { Connection, Notification } from "./connection.ts";
import { backoff, defaultInterval } from "./pace.ts";
import { readReport } from "./replies.ts";
import type { WatchedRun } from "./run.ts";

export class Listener {
  constructor(_connection: Connection, _clock: Clock, _onError: (error: unknown) => void) {}
  watch(_run: WatchedRun): () => void {
    return () => {};
  }
  receive(_message: Notification): void {}
}
