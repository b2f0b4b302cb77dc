import type { TaskSnapshot } from "../client/index.ts";
import { isTerminal } from "../protocol/status.ts";
import { spinner } from "./live.ts";
import type { Output } from "./output.ts";
import { elapsed, oneLine, shortIds } from "./text.ts";

/** How one task is shown while it is followed: a live line on a terminal, elsewhere a line each time it changes. */
export interface View {
  show(task: TaskSnapshot): void;
  end(): void;
}

const colours: Readonly<Record<string, string>> = {
  completed: "32",
  failed: "31",
  cancelled: "33",
  input_required: "36",
};
const marks: Readonly<Record<string, string>> = { completed: "✓", failed: "✗", cancelled: "–" };
const barWidth = 12;

/** How much is done: by the task's numbers, or else by its message ("3/10", "3 of 10", "30 %"). */
function share({ progress, statusMessage = "" }: TaskSnapshot): number | undefined {
  if (progress?.total === undefined || progress.total <= 0) return shareIn(statusMessage);
  return Math.min(1, Math.max(0, progress.progress / progress.total));
}

function shareIn(message: string): number | undefined {
  const [, percent] = /(?:^|[\s(])(\d{1,3}(?:\.\d+)?) ?%/.exec(message) ?? [];
  if (percent !== undefined) return Math.min(1, Number(percent) / 100);
  const [, part, whole] = /(?:^|[\s([])(\d+) ?(?:\/|of) ?(\d+)(?![\d/.])/.exec(message) ?? [];
  if (part === undefined || Number(whole) === 0) return undefined;
  return Math.min(1, Number(part) / Number(whole));
}

function bar(share: number): string {
  const full = Math.round(share * barWidth);
  return `[${"#".repeat(full)}${"-".repeat(barWidth - full)}] ${Math.floor(share * 100)}%`;
}

/** A view of the task that this label names. */
export function createView(out: Output, label: string, startedAt: number): View {
  const name = `${label} ${Math.random()}`;
  let shown = "";
  let latest: TaskSnapshot | undefined;

  function line(mark: string): string {
    const { taskId, status, statusMessage = "" } = latest ?? { taskId: "", status: "calling" };
    const word = wordFor(status);
    const done = latest === undefined || isTerminal(latest.status) ? undefined : share(latest);
    const parts = [
      mark,
      idFor(taskId),
      oneLine(label),
      word,
      oneLine(statusMessage),
      done === undefined ? "" : bar(done),
    ];
    const time = out.isTerminal ? elapsed(Date.now() - startedAt) : "";
    return [...parts, time].filter((part) => part !== "").join("  ");
  }

  function paint(text: string): string {
    const word = wordFor(latest?.status ?? "");
    const colour = colours[latest?.status ?? ""];
    return out.live.colours && colour !== undefined ? text.replace(word, `\u001B[${colour}m${word}\u001B[0m`) : text;
  }

  out.live.set(name, () => line(spinner()), paint);
  return {
    show(task) {
      latest = task;
      const { status, statusMessage } = task;
      const now = JSON.stringify([status, statusMessage]);
      if (now === shown) return;
      shown = now;
      const over = isTerminal(status);
      if (over) out.live.set(name, undefined);
      if (over || !out.isTerminal) out.say(paint(line(out.isTerminal ? (marks[status] ?? "") : "")));
    },
    end: () => out.live.set(name, undefined),
  };
}

const wordFor = (status: string) => status.replace("_", " ");
const idFor = (id: string) => oneLine(shortIds([id]).get(id) ?? id);
