import type { TaskStatus } from "../../src/protocol/status.ts";
import { toResponse } from "../../src/store/rules.ts";
import type { InputRecord } from "../../src/store/store.ts";
import type { Line } from "./line.ts";

/** What can happen to a round; strike.ts says what each one does. */
export type Blow =
  | "kill"
  | "freeze"
  | "drain"
  | "all"
  | "front"
  | "freezeFront"
  | "cut"
  | "mute"
  | "stall"
  | "terminate"
  | "crash";

/** A round's database: a file, or one on a server. */
export interface Database extends AsyncDisposable {
  /** How many front ends share it. */
  readonly fronts: number;
  /** The blows that come first, so that each kind happens, and how likely each one is after them. */
  readonly blows: { readonly first: readonly Blow[]; readonly odds: Readonly<Partial<Record<Blow, number>>> };
  /** The way of one process to it. */
  connect(): Promise<Way>;
  /** Runs one statement past the store. Rejects while the database is away or somebody keeps it. */
  query<R>(text: string): Promise<R[]>;
  /** The database's own opinion of what it holds: "ok", or what is wrong. */
  checkIntegrity(): Promise<string>;
  /** Ends every connection to it. */
  terminate(): Promise<void>;
  /** Ends the server in the middle of everything, and starts it again so many milliseconds later. */
  crash(awayMs: number): Promise<void>;
}

export interface Way {
  /** What `process.ts` opens: a file or a URL. */
  readonly address: string;
  /** What can be cut, or null for a file. */
  readonly line: Line | null;
}

/** Where rounds get their databases from. */
export interface Databases extends AsyncDisposable {
  /** An empty database. `home` is a folder for this round. It goes when it is disposed; a file stays. */
  fresh(home: string): Promise<Database>;
}

/** What the database holds of a task, read past the store. */
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
  readonly cancelRequested: boolean;
  readonly result: string | null;
  readonly error: string | null;
  readonly tag: string;
  readonly steps: ReadonlyMap<string, { readonly state: string; readonly value: string | null }>;
  readonly responses: ReadonlyMap<string, InputRecord["response"]>;
  readonly events: ReadonlyMap<string, string | null>;
  readonly activation: object | null;
}

/** The port's invariants, as what breaks them. Both dialects take these statements. */
const broken = `
  SELECT id, status, 'has nothing that would ever move it' AS why FROM task
  WHERE status = 'working'
    AND NOT EXISTS (SELECT 1 FROM activation WHERE activation.task = seq)
    AND NOT EXISTS (SELECT 1 FROM event WHERE event.task = seq AND awaited AND value IS NULL)
  UNION ALL
  SELECT id, status, 'asks for nothing' FROM task
  WHERE status = 'input_required' AND NOT EXISTS (SELECT 1 FROM input WHERE input.task = seq AND input.open)
  UNION ALL
  SELECT id, status, 'may be run' FROM task JOIN activation ON activation.task = seq
  WHERE finished_at IS NOT NULL OR (status = 'input_required' AND recovery = 'retry' AND NOT late)
  UNION ALL
  SELECT 'activation of ' || task, state, 'is in no lane' FROM activation AS one
  WHERE state = 'ready' AND NOT EXISTS (
    SELECT 1 FROM lane WHERE lane.owner = one.owner AND lane.queue = one.queue AND lane.tool = one.tool
      AND lane.version = one.version AND lane.priority = one.priority)`;

/** Tasks that break an invariant at this moment, or null if the database could not be looked at. */
export async function lookForBroken(database: Database): Promise<string[] | null> {
  try {
    return (await database.query(broken)).map((row) => JSON.stringify(row));
  } catch {
    return null;
  }
}

type TaskRow = Omit<Row, "tag" | "steps" | "responses" | "events" | "activation" | "cancelRequested"> & {
  readonly args: string;
  readonly cancelRequested: boolean | 0 | 1;
};
type Of<T> = T & { readonly task: number; readonly key: string };

export async function readRows(database: Database): Promise<Map<string, Row>> {
  const tasks = await database.query<TaskRow>(`
    SELECT seq, id, tool, status, status_message AS "statusMessage", created_at AS "createdAt",
      finished_at AS "finishedAt", epoch, strikes, cancel_requested AS "cancelRequested", result, error, args
    FROM task JOIN call ON call.task = seq`);
  const activations = await database.query<{ task: number }>(
    'SELECT task, state, due, lease_until AS "until", holder FROM activation',
  );
  const steps = await database.query<Of<{ state: string; value: string | null }>>(
    "SELECT task, key, state, value FROM step",
  );
  const inputs = await database.query<Of<{ response: string | null }>>("SELECT task, key, response FROM input");
  const events = await database.query<Of<{ value: string | null }>>("SELECT task, key, value FROM event");
  const stepsOf = Map.groupBy(steps, ({ task }) => task);
  const inputsOf = Map.groupBy(inputs, ({ task }) => task);
  const eventsOf = Map.groupBy(events, ({ task }) => task);
  const activationOf = new Map(activations.map((activation) => [activation.task, activation]));
  return new Map(
    tasks.map(({ args, ...row }) => {
      const { script } = JSON.parse(args) as { script: { tag: string } };
      const responses = (inputsOf.get(row.seq) ?? []).map(({ key, response }) => [key, toResponse(response)] as const);
      const whole: Row = {
        ...row,
        cancelRequested: Boolean(row.cancelRequested),
        tag: script.tag,
        steps: new Map((stepsOf.get(row.seq) ?? []).map(({ key, state, value }) => [key, { state, value }])),
        responses: new Map(responses),
        events: new Map((eventsOf.get(row.seq) ?? []).map(({ key, value }) => [key, value])),
        activation: activationOf.get(row.seq) ?? null,
      };
      return [row.id, whole];
    }),
  );
}
