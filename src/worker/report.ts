import type { Clock } from "../clock.ts";
import type { Progress } from "../store/store.ts";

/** Lets a few status messages a second through to the store, and always the last one. */
export interface Reporter {
  report(message: string, progress: Progress | null): void;
  /** Holds messages back while an attempt only repeats what earlier ones did; not for long, as that takes no time. */
  hold(): void;
  release(): void;
  /** Writes what is still to be written. */
  flush(): Promise<void>;
}

type Status = { readonly message: string; readonly progress: Progress | null };

const pauseMs = 250;

/** A reporter that writes with `write`, which must not reject. */
export function createReporter(clock: Clock, current: Status, write: (status: Status) => Promise<void>): Reporter {
  let written = current;
  let latest: Status | null = null;
  let held = false;
  let stopHolding = () => {};
  let stopPause: (() => void) | null = null;
  let writing = Promise.resolve();

  function push(): void {
    if (latest === null || held) return;
    const status = latest;
    latest = null;
    if (status.message === written.message && sameProgress(status.progress, written.progress)) return;
    written = status;
    writing = writing.then(() => write(status));
    stopPause = clock.after(pauseMs, () => {
      stopPause = null;
      push();
    });
  }

  function release(): void {
    stopHolding();
    held = false;
    if (stopPause === null) push();
  }

  function endPause(): void {
    stopPause?.();
    stopPause = null;
  }

  return {
    report(message, progress) {
      latest = { message, progress };
      if (stopPause === null) push();
    },
    hold() {
      held = true;
      stopHolding = clock.after(pauseMs, release);
    },
    release,
    async flush() {
      endPause();
      release();
      endPause();
      await writing;
    },
  };
}

function sameProgress(a: Progress | null, b: Progress | null): boolean {
  return a?.progress === b?.progress && a?.total === b?.total;
}
