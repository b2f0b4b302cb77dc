import { DatabaseSync } from "node:sqlite";
import type { InputResponse } from "../../src/protocol/input.ts";
import type { TaskStatus } from "../../src/protocol/status.ts";

/** What the file holds of a task, read past the store. */
export interface Row {
  readonly seq: number;
  readonly id: string;
  readonly tool: string;
  readonly status: TaskStatus;
  readonly statusMessage: string | null;
  readonly createdAt: number;
  readonly finishedAt: number | null;
  readonly epoch: number;
  readonly strikes: number;
  readonly cancelRequested: number;
  readonly result: string | null;
  readonly error: string | null;
  readonly tag: string;
  readonly steps: ReadonlyMap<string, { readonly state: string; readonly value: string | null }>;
  readonly responses: ReadonlyMap<string, InputResponse | null>;
  readonly events: ReadonlyMap<string, string | null>;
  readonly activation: string | null;
}

/** The port's invariants, as what breaks them. */
const broken = `
  SELECT id, status, 'has nothing that would ever move it' AS why FROM task
  WHERE status = 'working'
    AND NOT EXISTS (SELECT 1 FROM activation WHERE activation.task = seq)
    AND NOT EXISTS (SELECT 1 FROM event WHERE event.task = seq AND awaited = 1 AND value IS NULL)
  UNION ALL
  SELECT id, status, 'asks for nothing' FROM task
  WHERE status = 'input_required' AND NOT EXISTS (SELECT 1 FROM input WHERE input.task = seq AND open = 1)
  UNION ALL
  SELECT id, status, 'may be run' FROM task JOIN activation ON activation.task = seq
  WHERE finished_at IS NOT NULL OR (status = 'input_required' AND recovery = 'retry')`;

/** Tasks that break an invariant at this moment, or null if another process kept us from looking. */
export function lookForBroken(file: string): string[] | null {
  try {
    using database = new DatabaseSync(file, { readOnly: true, timeout: 0 });
    return database
      .prepare(broken)
      .all()
      .map((row) => JSON.stringify(row));
  } catch {
    return null;
  }
}

/** SQLite's own opinion of the file: "ok", or what is wrong. */
export function checkIntegrity(file: string): string {
  using database = new DatabaseSync(file);
  const lines = [
    ...database.prepare("PRAGMA integrity_check").all(),
    ...database.prepare("PRAGMA foreign_key_check").all(),
  ];
  return lines.map((line) => String(Object.values(line)[0])).join("; ");
}

export function readRows(file: string): Map<string, Row> {
  using database = new DatabaseSync(file, { readOnly: true, timeout: 5_000 });
  const tasks = database.prepare(`
    SELECT seq, id, tool, status, status_message AS statusMessage, created_at AS createdAt, finished_at AS finishedAt,
      epoch, strikes, cancel_requested AS cancelRequested, result, error, args ->> '$.script.tag' AS tag,
      (SELECT json_object('state', state, 'due', due, 'until', lease_until, 'holder', holder)
       FROM activation WHERE activation.task = seq) AS activation
    FROM task JOIN call ON call.task = seq`);
  const steps = database.prepare("SELECT key, state, value FROM step WHERE task = ?");
  const inputs = database.prepare("SELECT key, response FROM input WHERE task = ?");
  const events = database.prepare("SELECT key, value FROM event WHERE task = ?");
  const rows = tasks.all() as unknown as Omit<Row, "steps" | "responses" | "events">[];
  return new Map(
    rows.map((row) => {
      const byKey = <T>(list: { key?: unknown }[], value: (row: never) => T) =>
        new Map(list.map((one) => [String(one.key), value(one as never)] as const));
      return [
        row.id,
        {
          ...row,
          steps: byKey(steps.all(row.seq), (step: { state: string; value: string | null }) => step),
          responses: byKey(inputs.all(row.seq), ({ response }: { response: string | null }) =>
            response === null ? null : (JSON.parse(response) as InputResponse),
          ),
          events: byKey(events.all(row.seq), ({ value }: { value: string | null }) => value),
        },
      ];
    }),
  );
}
